import sys
import __main__
main = sys.modules["__main__"]
print(main is __main__, vars(main) is globals(), globals() is locals())
__main__.planted = 7
print(planted)
print(main.__dict__["__name__"], main.__spec__, repr(main))
print(sys._getframe().f_globals is globals(), sys._getframe().f_locals is globals())
print(sys._getframe().f_code.co_name, sys._getframe().f_code.co_filename, sys._getframe().f_code.co_firstlineno)
