"""Text cells: missing values, and how messages show a cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from connectors.options import MISSING_NUMBERS

Cells = Sequence[str]
Bad = dict[int, str]
"""Why an event cannot be taken, by row number."""

_SHOWN = 80


def is_missing(cell: str, missing: frozenset[str] = MISSING_NUMBERS) -> bool:
    """Return whether a numeric cell is missing, ignoring surrounding white space."""
    return cell in missing or cell.strip() in missing


def shown(value: Any) -> str:
    """Return the repr of a value, truncated for use in a message."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
