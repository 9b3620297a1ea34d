# commentprint('after a carriage return')
