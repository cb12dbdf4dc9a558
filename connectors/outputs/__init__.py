"""Sinks that write files: result tables, and folders of rotated files."""

from __future__ import annotations
