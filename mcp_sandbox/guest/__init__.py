"""The guest: our code inside the sandbox (`inside/`), and the host side of the talk with it."""
