"""The MCP clients that people have, and the files that tell each which servers to start.

`table` says where each client's file lies and how an entry looks in it; `jsonc` and `toml` change such a file's text
and nothing around the change; `file` reads, changes and writes it. Above: the commands and `doctor`.
"""
