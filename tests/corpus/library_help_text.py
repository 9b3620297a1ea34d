class Thing:
    """A thing."""
    def method(self, x: int) -> str:
        """Do it."""
help(Thing)
help("this is no topic")
help(len)
