"""The Docker engine: the only place that knows Docker."""
