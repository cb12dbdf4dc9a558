"""Sinks that write files: result tables, and folders of rotated files."""
