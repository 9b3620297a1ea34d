pri​nt(1)
