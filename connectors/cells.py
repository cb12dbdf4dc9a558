"""Cells of text: which are missing, and how messages show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from connectors.options import MISSING_NUMBERS

Cells = Sequence[str]
Bad = dict[int, str]
"""Why an event cannot be taken, by row number."""

_SHOWN = 80


def is_missing(cell: str, missing: frozenset[str] = MISSING_NUMBERS) -> bool:
    """Whether a cell of numbers, in which space does not matter, stands for no value."""
    return cell in missing or cell.strip() in missing


def shown(value: Any) -> str:
    """A value for a message, cut short."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
