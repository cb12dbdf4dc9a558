"""The HTTP server of a run: a page and figures to read, beside clients that are hostile or do not read."""
