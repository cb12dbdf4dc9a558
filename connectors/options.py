"""Options of a stream, from the URL and keyword arguments."""

from __future__ import annotations

import contextlib
import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from connectors.errors import ConnectorError, OptionError

N = TypeVar("N", int, float)
T = TypeVar("T")

_FLAGS = {"yes": True, "true": True, "1": True, "on": True, "no": False, "false": False, "0": False, "off": False}
KINDS = ("number", "category", "ignore", "time")
_PAIR = f"NAME:KIND with KIND one of {', '.join(KINDS)}"


def split_names(text: str) -> list[str]:
    """Split names at commas; names with commas are quoted as in CSV.

    An empty text is one empty name.

    Examples
    --------
    >>> split_names('a,"b, c"'), split_names("")
    (['a', 'b, c'], [''])
    """
    try:
        found = next(csv.reader([text]), [])
    except csv.Error as error:
        raise ConnectorError(f"{text!r} is not a list of names separated by commas: {error}") from None
    return list(filter(None, found)) or [""]


def split_kinds(text: str) -> dict[str, str]:
    """Parse column kinds such as ``x:category,y:ignore``.

    Examples
    --------
    >>> split_kinds('x:category,"a, b:c:ignore"')
    {'x': 'category', 'a, b:c': 'ignore'}
    """
    parts = list(filter(None, split_names(text)))
    if wrong := next((part for part in parts if ":" not in part or part.rpartition(":")[2] not in KINDS), None):
        raise ConnectorError(f"{wrong!r} is no {_PAIR}", "value")
    return _by_name(part.rpartition(":")[::2] for part in parts)


def split_formats(text: str) -> str | dict[str, str]:
    """Parse a format of all times, or formats by column.

    Examples
    --------
    >>> split_formats("%b %d, %Y"), split_formats('day:%Y%m%d,"at:%b %d, %H:%M"')
    ('%b %d, %Y', {'day': '%Y%m%d', 'at': '%b %d, %H:%M'})
    """
    starts = [(part, part.partition("%")[0].rpartition(":")[0]) for part in split_names(text)]
    if not any(name for _, name in starts):
        return text
    if nameless := next((part for part, name in starts if not name), None):
        raise ConnectorError(f"{nameless!r} is no NAME:FORMAT; one with a comma goes in double quotes", "value")
    return _by_name((name, part[len(name) + 1 :]) for part, name in starts)


def _by_name(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return values by column; raises if a column has two different ones."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if found.setdefault(name, value) != value:
            raise ConnectorError(f"column {name!r} has both {found[name]!r} and {value!r}: give one of them", "value")
    return found


class Options:
    """Options of one stream; `finish` rejects those that no method has read.

    Examples
    --------
    >>> options = Options("a.csv", {"follow": "yes", "lable": "y"})
    >>> options.flag("follow", False), options.text("label")
    (True, None)
    >>> options.finish()
    Traceback (most recent call last):
    connectors.errors.ConnectorError: a.csv: unknown option `lable`; allowed are `follow`, `label`
    """

    def __init__(self, name: str, given: Mapping[str, Any]) -> None:
        self.name = name
        self._given = {key: value for key, value in given.items() if value is not None}
        self._read: list[str] = []

    def value(self, key: str) -> Any:
        """Return the unconverted value of an option."""
        self._read.append(key)
        return self._given.pop(key, None)

    def _refuse(self, key: str, value: Any, wanted: str) -> ConnectorError:
        return OptionError(self.name, key, f"must be {wanted}, got {value!r}")

    def text(self, key: str, default: str | None = None) -> str | None:
        """Return a text option; an empty text counts as absent."""
        value = self.value(key)
        return default if value is None else str(value) or None

    def has(self, key: str) -> bool:
        """Return whether an option was given and not read yet."""
        return key in self._given

    def peek(self, key: str) -> str | None:
        """Return a text option, which another method reads."""
        return str(self._given.get(key) or "") or None

    def seconds(self, key: str, default: float) -> float:
        """Return a non-negative number of seconds, such as 0.5 or 0.5s."""
        wanted = "a number of seconds, 0 or more"
        return self._number(key, default, lambda value: float(str(value).removesuffix("s")), 0.0, wanted)

    def flag(self, key: str, default: bool) -> bool:
        """Return a yes/no option."""
        value = self.value(key)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        if str(value).lower() not in _FLAGS:
            raise self._refuse(key, value, "yes or no")
        return _FLAGS[str(value).lower()]

    def integer(self, key: str, default: int, least: int = 0) -> int:
        """Return an integer of at least `least`."""
        return self._number(key, default, int, least, f"a whole number of at least {least}")

    def _number(self, key: str, default: N, convert: Callable[[Any], N], least: N, wanted: str) -> N:
        value = self.value(key)
        if value is None:
            return default
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if least <= (number := convert(value)) < math.inf:
                return number
        raise self._refuse(key, value, wanted)

    def names(self, key: str) -> list[str]:
        """Return a list of names; a text is split by `split_names`."""
        value = self.value(key)
        if value is None:
            return []
        return split_names(value) if isinstance(value, str) else list(map(str, value))

    def several(self, key: str, allowed: Sequence[str], default: Sequence[str]) -> list[str]:
        """Return a list of allowed values."""
        names = self.names(key)
        if set(names) - set(allowed):
            raise self._refuse(key, ",".join(names), "some of " + ", ".join(allowed))
        return names or list(default)

    def texts(self, key: str, default: frozenset[str]) -> frozenset[str]:
        """Return a set of texts, which always includes the empty text."""
        given = self.has(key)
        texts = self.names(key)
        return frozenset({"", *texts}) if given else default

    def one_of(self, key: str, allowed: Iterable[str]) -> str | None:
        """Return one of the allowed values, or None if the option is absent."""
        value = str(self.value(key) or "")
        if value and value not in allowed:
            raise self._refuse(key, value, "one of " + ", ".join(allowed))
        return value or None

    def kinds(self, key: str) -> dict[str, str]:
        """Return column kinds from a mapping or a text such as ``x:category,y:ignore``."""
        value = self.value(key)
        if value is None:
            return {}
        pairs = dict(value) if isinstance(value, Mapping) else self._split(key, split_kinds, value)
        for name, kind in pairs.items():  # the name may be empty, as that of a pandas index
            if kind not in KINDS:
                raise self._refuse(key, f"{name}:{kind}" if kind else name, _PAIR)
        return pairs

    def formats(self, key: str) -> str | dict[str, str] | None:
        """Return a format of times, or formats by column; see `split_formats`."""
        value = self.value(key)
        return dict(value) if isinstance(value, Mapping) else self._split(key, split_formats, value) if value else None

    def _split(self, key: str, split: Callable[[str], T], value: Any) -> T:
        """Return the parts of a text; errors name the stream and the option."""
        try:
            return split(str(value))
        except ConnectorError as error:
            raise OptionError(self.name, key, f"{value!r}: {error}") from None

    def allow(self, keys: Iterable[str]) -> None:
        """Add option names to the list in the message about unknown options."""
        self._read += keys

    def rest(self) -> dict[str, Any]:
        """Return all options not read so far."""
        rest, self._given = self._given, {}
        return rest

    def finish(self) -> None:
        """Raise ConnectorError for options that were not read."""
        if self._given:
            unknown, first = ", ".join(f"`{key}`" for key in self._given), next(iter(self._given))
            allowed = ", ".join(f"`{key}`" for key in sorted(set(self._read)))
            what = f"unknown option {unknown}; allowed are {allowed}"
            raise ConnectorError(f"{self.name}: {what}", "unknown", option=first)
