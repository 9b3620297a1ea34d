"""What isolates: each module or package here is one kind of engine behind `mcp_sandbox.sandbox`."""
