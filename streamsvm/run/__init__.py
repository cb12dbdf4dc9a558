"""From source to sink: every event is predicted before it is learned, measured, written and kept."""

from __future__ import annotations

DEFAULT_SOURCE = "synthetic:demo"
DEFAULT_MODEL = "blend"
