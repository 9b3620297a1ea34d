open("no such file.txt")
