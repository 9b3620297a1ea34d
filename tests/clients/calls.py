"""The calls that every client makes, whatever Python runs it."""

CALLS = {
    "python": ("execute_python", {"code": "import sys; print(6 * 7); print('warned', file=sys.stderr)"}),
    "shell": ("execute_shell", {"command": "echo forty-two; exit 3"}),
    "refused": ("execute_shell", {"command": " "}),
}
