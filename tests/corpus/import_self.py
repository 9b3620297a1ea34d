print("running as", __name__)
count = 1
if __name__ == "__main__":
    import main
    import sys, os
    print(main.__name__, main.__file__, main is sys.modules["__main__"], main.count)
    main.count = 2
    print(count, sys.modules["main"].__spec__.name, sorted(os.listdir()))
