import code
x = 5
code.interact(local=locals())
code.interact(banner="hello", exitmsg="bye")
