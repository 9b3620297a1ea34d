with open(__file__, "a") as file:
    file.write("# appended\n")
print(open(__file__).read().count("appended"))
with open(__file__, "w") as file:
    file.write("line one\n" * 12)
raise ValueError("the shown line comes from the file as it is now")
