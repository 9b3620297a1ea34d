value = [i for i in range(10) if i = 3]
