try:
    exit(9)
finally:
    print("finally runs")
