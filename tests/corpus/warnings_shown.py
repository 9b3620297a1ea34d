import warnings
def old():
    warnings.warn("old() goes away", DeprecationWarning, stacklevel=2)
    warnings.warn("careful", stacklevel=1)
old()
old()
for _ in range(2):
    warnings.warn("once per place", FutureWarning)
warnings.warn("hidden by default", ImportWarning)
warnings.warn_explicit("explicit", UserWarning, "elsewhere.py", 3)
import imp
