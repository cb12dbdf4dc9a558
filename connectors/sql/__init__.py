"""SQL databases as sources and outputs."""
