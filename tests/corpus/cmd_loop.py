import cmd
class Shell(cmd.Cmd):
    prompt = "> "
    def do_EOF(self, line):
        print("eof")
        return True
Shell(stdin=__import__("sys").stdin).cmdloop("welcome")
