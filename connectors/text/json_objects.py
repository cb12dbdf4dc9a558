"""JSON objects from texts, with exact integers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import orjson

from connectors.columns.cells import shown
from connectors.columns.envelopes import Envelope

_CONSTANTS = {"NaN": None, "Infinity": math.inf, "-Infinity": -math.inf}
_BEYOND_INTEGERS = float(1 << 63)


class JsonObjects:
    """Parse objects with orjson; integers beyond 64 bits are parsed exactly.

    orjson rounds such integers, so their texts are parsed again.

    Parameters
    ----------
    exact
        Names of the fields whose integers must be exact.
    envelope
        Envelope that contains the fields, if any.
    """

    def __init__(self, exact: Sequence[str], envelope: Envelope | None) -> None:
        self._exact, self._envelope = exact, envelope

    def one(self, text: str) -> dict[str, Any] | ValueError:
        """Parse a text. Return a ValueError with the reason if it is not an object."""
        try:
            value = _loads(text)
            if isinstance(value, dict) and self._has_rounded([value]):
                value = _slow_loads(text)
        except (ValueError, RecursionError) as error:
            return ValueError(f"not JSON: {error}")
        return value if isinstance(value, dict) else ValueError(f"not a JSON object: {shown(value)}")

    def all(self, texts: Sequence[bytes]) -> list[dict[str, Any]] | None:
        """Parse many texts at once. None if any needs a separate check."""
        try:
            rows = list(map(orjson.loads, texts))
        except orjson.JSONDecodeError:
            return None
        return None if set(map(type, rows)) - {dict} or self._has_rounded(rows) else rows

    def _has_rounded(self, rows: Sequence[dict[str, Any]]) -> bool:
        """Return whether an exact field may contain an integer of more than 64 bits."""
        inner = rows if self._envelope is None or not self._exact else list(map(self.inner, rows))
        for name in self._exact:
            values = [row.get(name) for row in inner] if "." not in name else [_value(row, name) for row in inner]
            has_floats = float in set(map(type, values))
            if has_floats and any(not abs(one) < _BEYOND_INTEGERS for one in values if type(one) is float):
                return True
        return False

    def inner(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the record in an object, empty if there is none."""
        try:
            found = row if self._envelope is None else self._envelope.record(row)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


def _value(row: Any, name: str) -> Any:
    """Return the value of a field, which may be nested, None if there is none."""
    if type(row) is not dict or name in row:
        return row[name] if type(row) is dict else None
    ends = [i for i, letter in enumerate(name) if letter == "."]
    found = (_value(row.get(name[:end]), name[end + 1 :]) for end in ends)
    return next((value for value in found if value is not None), None)


def _loads(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        if "NaN" not in text and "Infinity" not in text:
            raise
    value = _slow_loads(text)
    json.dumps(value, ensure_ascii=False).encode()  # rejects lone surrogates, as orjson does
    return value


def _slow_loads(text: str) -> Any:
    """Parse with the json module: integers of any size, NaN and infinities."""
    return json.loads(text, parse_constant=_CONSTANTS.get)
