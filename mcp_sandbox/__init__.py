"""MCP server that runs model-written code, each call in a fresh, locked-down, single-use container."""

__version__ = "0.1.0"
