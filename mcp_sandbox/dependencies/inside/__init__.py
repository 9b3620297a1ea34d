"""What runs inside the sandbox that installs packages: sent as its program, and importing nothing of ours."""
