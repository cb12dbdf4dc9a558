"""Names to columns: features of dicts and tables become scaled rows of numbers."""
