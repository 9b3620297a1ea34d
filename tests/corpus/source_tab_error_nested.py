if 1:
    if 1:
	print(1)
