raise BaseException("not an Exception")
