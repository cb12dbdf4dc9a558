"""Sources of several files: paths, globs, folders and their partitions."""
