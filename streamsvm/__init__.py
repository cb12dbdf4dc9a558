"""Online classification of drifting streams."""

from __future__ import annotations
