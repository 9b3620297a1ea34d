import warnings
warnings.simplefilter("always")
def leak():
    open("/dev/null")
leak()
async def never_awaited():
    pass
never_awaited()
print("done")
