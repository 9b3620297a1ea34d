import getpass, os, pwd, pathlib
for call in (getpass.getuser, lambda: pwd.getpwuid(os.getuid()).pw_name, pathlib.Path.home, os.getlogin):
    try:
        print(call())
    except (KeyError, OSError) as error:
        print(type(error).__name__, error)
