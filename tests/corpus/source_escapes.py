print(ascii('\N{BULLET}\x41\u00e9\U0001f40d\101'), b'\xff', r'\d', '\
')
