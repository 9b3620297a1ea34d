import linecache, sys
for number in range(1, 6):
    print(number, linecache.getline(__file__, number), end="")
print(__loader__.get_source("__main__") == open(__file__).read())
print(__loader__.get_data(__file__) == open(__file__, "rb").read(), __loader__.is_package("__main__"))
