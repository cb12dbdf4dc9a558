"""Cache of converted texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MEMO_SIZE = 1 << 16


class Memo(dict[Any, Any]):
    """Dictionary that converts a text on first access and caches the result.

    It is cleared when it grows too large.

    Parameters
    ----------
    convert
        Function that converts a text.
    """

    def __init__(self, convert: Callable[[str], Any]) -> None:
        super().__init__()
        self._convert = convert

    def __missing__(self, text: str) -> Any:
        value = self._convert(text)
        if len(self) > _MEMO_SIZE:
            self.clear()
        self[text] = value
        return value
