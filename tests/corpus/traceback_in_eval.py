eval("1 +\n undefined")
