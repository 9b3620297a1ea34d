x = 1; y = 2; print(x, y); 1 / 0; print('never')
