"""Sources of several files: paths, globs, folders and their partitions."""

from __future__ import annotations
