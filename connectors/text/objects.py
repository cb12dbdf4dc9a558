"""JSON texts as objects, with integers of any size in the fields that need them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import orjson

from connectors.columns.cells import shown
from connectors.columns.envelopes import Envelope
from connectors.columns.nested import holder

_CONSTANTS = {"NaN": None, "Infinity": math.inf, "-Infinity": -math.inf}
_BEYOND_INTEGERS = float(1 << 63)


class JsonObjects:
    """Parse objects with orjson. Integers beyond 64 bits, which orjson rounds, are parsed again.

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
            if isinstance(value, dict):
                self._keep_exact(value, text)
        except (ValueError, RecursionError) as error:
            return ValueError(f"not JSON: {error}")
        return value if isinstance(value, dict) else ValueError(f"not a JSON object: {shown(value)}")

    def all(self, texts: Sequence[bytes]) -> list[dict[str, Any]] | None:
        """Parse many texts at once. None if any needs a separate check."""
        try:
            rows = list(map(orjson.loads, texts))
        except orjson.JSONDecodeError:
            return None
        if set(map(type, rows)) - {dict}:
            return None
        inner = rows if self._envelope is None or not self._exact else list(map(self.inner, rows))
        for name in self._exact:
            values = [row.get(name) for row in inner] if "." not in name else [_value(row, name) for row in inner]
            if float in set(map(type, values)) and any(map(_is_rounded, values)):
                return None
        return rows

    def inner(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the record in an object, empty if there is none."""
        try:
            found = row if self._envelope is None else self._envelope.record(row)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def _keep_exact(self, row: dict[str, Any], text: str) -> None:
        inner = self.inner(row) if self._exact else {}
        for name in self._exact:
            found = holder(inner, name)
            if found is not None and _is_rounded(found[0][found[1]]):
                exact = holder(self.inner(_slow_loads(text)), name)
                assert exact is not None, "both parsers find it"
                found[0][found[1]] = exact[0][exact[1]]


def _value(row: dict[str, Any], name: str) -> Any:
    """Return the value of a field, which may be nested."""
    found = holder(row, name)
    return None if found is None else found[0][found[1]]


def _is_rounded(value: Any) -> bool:
    """Return whether a number may be an integer of more than 64 bits."""
    return type(value) is float and not abs(value) < _BEYOND_INTEGERS


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
    """Parse a text with the json module, which supports integers of any size, NaN and infinities."""
    return json.loads(text, parse_constant=_CONSTANTS.get)
