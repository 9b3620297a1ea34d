"""Every run on the record: written before it starts, hash-chained, on this host's disk.

`store` is what the executor sees. Under it, `journal` writes one server's chain, `folder` holds the files,
`lease` tells the living from the dead, `record` is what a record says. `query`, `verify`, `prune` and
`export` read it.
"""
