# coding: latin-1
größe = 'ü' 5
