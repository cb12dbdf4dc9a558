"""SQL databases as sources and outputs."""

from __future__ import annotations
