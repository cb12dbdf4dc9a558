"""Options of a stream, from the URL and keyword arguments."""

from __future__ import annotations

import contextlib
import csv
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from connectors.columns.cells import MISSING, MISSING_NUMBERS
from connectors.columns.spelling import Spelling, declared
from connectors.errors import ConnectorError

N = TypeVar("N", int, float)

_SAMPLE = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)
_FLAGS = {"yes": True, "true": True, "1": True, "on": True, "no": False, "false": False, "0": False, "off": False}
KINDS = ("number", "category", "ignore", "time")
TIME_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Units of time, as the number of units per second."""
_WEB = ("http://", "https://")
STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "sftp", "ssh", "memory")
"""Schemes of files in object stores and on SFTP servers, read through fsspec."""
MOST_COLUMNS = 100_000
"""Maximum number of columns of a table, because each is inspected before the first event."""


_QUERY = {mark: re.compile(rf"\{mark}(?=\w[\w.-]*=|[\w-]*(?:&|$))") for mark in "?#"}
"""Start of the options of a URL: a mark before a name. Other question marks are of a glob."""


def split_url(url: str) -> tuple[str, dict[str, Any]]:
    """Split a URL into path and query options; the name of an existing file is not split.

    The query of a web address belongs to its server. Options follow a ``#``, which is never sent.

    Examples
    --------
    >>> split_url("a.csv?label=y&types=x:category")
    ('a.csv', {'label': 'y', 'types': 'x:category'})
    >>> split_url("part-?.csv?label=y")
    ('part-?.csv', {'label': 'y'})
    >>> split_url("https://host/a.csv?signature=x#label=y")
    ('https://host/a.csv?signature=x', {'label': 'y'})
    """
    url = url.removeprefix("file://")
    is_web = url.lower().startswith(_WEB)
    mark = "#" if is_web else "?"
    found = None if not is_web and os.path.exists(url) else _QUERY[mark].search(url)
    if found is None:
        return url, {}
    return url[: found.start()], dict(parse_qsl(url[found.end() :], keep_blank_values=True))


def split_urls(urls: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Split the URLs of several files into their paths and query options, which hold for all of them.

    Examples
    --------
    >>> split_urls(["a.csv?label=y", "b.csv"])
    (['a.csv', 'b.csv'], {'label': 'y'})
    """
    paths, query = list[str](), dict[str, Any]()
    for url in urls:
        path, more = split_url(url)
        if clash := next((name for name in more if query.get(name, more[name]) != more[name]), None):
            what = f"option `{clash}` holds for all files of the source: give it once"
            raise ConnectorError(f"{url}: {what}", "value", option=clash)
        paths.append(path)
        query |= more
    return paths, query


def is_remote(path: str) -> bool:
    """Return whether a path is the URL of a file on a server or in an object store."""
    scheme, colons, _ = path.partition("://")
    return bool(colons) and scheme.lower() in ("http", "https", *STORES)


def check_address(path: str) -> None:
    """Refuse a web address with an invalid port before any message names it.

    What looks like a port may be a part of a password that is not encoded.

    Raises
    ------
    ConnectorError
        If the address is not valid.
    """
    if not path.lower().startswith(_WEB):
        return
    try:
        _ = urlsplit(path).port
    except ValueError:
        what = "is no valid web address: check host and port, and encode user and password (%2F for /, %3F for ?)"
        raise ConnectorError(f"{path.partition(':')[0]}://...: {what}", "value") from None


def printable(path: str) -> str:
    """Return a path as valid Unicode, with undecodable bytes as ``\\xff``. A URL loses credentials and a web query.

    Examples
    --------
    >>> printable("https://me:hunter2@host/a.csv?signature=x"), printable("sftp://me:hunter2@host/a.csv")
    ('https://host/a.csv', 'sftp://host/a.csv')
    """
    scheme, colons, rest = path.partition("://")
    if colons:
        rest = rest.partition("?")[0] if path.lower().startswith(_WEB) else rest
        host, slash, key = rest.partition("/")
        path = scheme + colons + host.rpartition("@")[2] + slash + key
    return os.fsencode(path).decode("utf-8", "backslashreplace")


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
    """Parse column kinds such as ``x:category,y:ignore``; a missing kind is empty.

    Examples
    --------
    >>> split_kinds('x:category,"a, b:c:ignore",z')
    {'x': 'category', 'a, b:c': 'ignore', 'z': ''}
    """
    pairs = (part.rpartition(":") if ":" in part else (part, "", "") for part in split_names(text) if part)
    return {name: kind for name, _, kind in pairs}


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
        self._asked: list[str] = []

    def _take(self, key: str) -> Any:
        self._asked.append(key)
        return self._given.pop(key, None)

    def _refuse(self, key: str, value: Any, wanted: str) -> ConnectorError:
        return ConnectorError(f"{self.name}: option `{key}` must be {wanted}, got {value!r}", "value", option=key)

    def text(self, key: str, default: str | None = None) -> str | None:
        """Return a text option; an empty text counts as absent."""
        value = self._take(key)
        return default if value is None else str(value) or None

    def has(self, key: str) -> bool:
        """Return whether an option was given and not read yet."""
        return key in self._given

    def peek(self, key: str) -> str | None:
        """Return a text option, which another method reads."""
        return str(self._given.get(key) or "") or None

    def value(self, key: str) -> Any:
        """Return the unconverted value of an option."""
        return self._take(key)

    def seconds(self, key: str, default: float) -> float:
        """Return a non-negative number of seconds."""
        return self._number(key, default, float, 0.0, "a number of seconds, 0 or more")

    def flag(self, key: str, default: bool) -> bool:
        """Return a yes/no option."""
        value = self._take(key)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        if str(value).lower() not in _FLAGS:
            raise self._refuse(key, value, "yes or no")
        return _FLAGS[str(value).lower()]

    def integer(self, key: str, default: int, least: int = 0) -> int:
        """Return an integer of at least `least`."""
        return self._number(key, default, int, least, f"a whole number of at least {least}")

    def _number(self, key: str, default: N, convert: Callable[[Any], N], least: N, wanted: str) -> N:
        value = self._take(key)
        if value is None:
            return default
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if least <= (number := convert(value)) < math.inf:
                return number
        raise self._refuse(key, value, wanted)

    def names(self, key: str) -> list[str]:
        """Return a list of names; a text is split by `split_names`."""
        value = self._take(key)
        if value is None:
            return []
        return split_names(value) if isinstance(value, str) else list(map(str, value))

    def several(self, key: str, allowed: Collection[str], default: Sequence[str]) -> list[str]:
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

    def delimiter(self, default: str) -> str:
        """Return the field delimiter: one character, or the word tab."""
        text = self.text("delimiter") or default
        character = {"tab": "\t", "\\t": "\t"}.get(text, text)
        if len(character) != 1:
            raise self._refuse("delimiter", text, "one character or tab")
        return character

    def choice(self, key: str, allowed: Iterable[str], default: str) -> str:
        """Return one of the allowed values."""
        return self.one_of(key, sorted(allowed)) or default

    def one_of(self, key: str, allowed: Iterable[str]) -> str | None:
        """Return one of the allowed values, or None if the option is absent."""
        value = str(self._take(key) or "")
        if value and value not in allowed:
            raise self._refuse(key, value, "one of " + ", ".join(allowed))
        return value or None

    def kinds(self, key: str) -> dict[str, str]:
        """Return column kinds from a mapping or a text such as ``x:category,y:ignore``."""
        value = self._take(key)
        if value is None:
            return {}
        pairs = dict(value) if isinstance(value, Mapping) else split_kinds(str(value))
        for kind in pairs.values():  # the name may be empty, as that of a pandas index
            if kind not in KINDS:
                raise self._refuse(key, value, f"pairs NAME:KIND with KIND one of {', '.join(KINDS)}")
        return pairs

    def allow(self, keys: Iterable[str]) -> None:
        """Add option names to the list in the message about unknown options."""
        self._asked += keys

    def rest(self) -> dict[str, Any]:
        """Return all options not read so far."""
        rest, self._given = self._given, {}
        return rest

    def finish(self) -> None:
        """Raise ConnectorError for options that were not read."""
        if self._given:
            unknown, first = ", ".join(f"`{key}`" for key in self._given), next(iter(self._given))
            allowed = ", ".join(f"`{key}`" for key in sorted(set(self._asked)))
            what = f"unknown option {unknown}; allowed are {allowed}"
            raise ConnectorError(f"{self.name}: {what}", "unknown", option=first)


@dataclass(slots=True)
class Roles:
    """Roles of named columns: label, key and time; all others are features unless ignored.

    Also the missing-value markers, columns to hide if present, whether to read features at all, and the formats of
    times and numbers.
    """

    label: str | None = None
    key: str | None = None
    time: str | None = None
    ignore: list[str] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    missing: frozenset[str] = MISSING
    hidden: list[str] = field(default_factory=list)
    bare: bool = False
    time_unit: str | None = None
    time_format: str | None = None
    spelling: Spelling | None = None

    @classmethod
    def of(cls, options: Options) -> Roles:
        """Create roles from options."""
        roles = cls(
            options.text("label"),
            options.text("key"),
            options.text("time"),
            options.names("ignore"),
            options.kinds("types"),
            options.texts("missing", MISSING),
            options.names("hide"),
            options.flag("bare", False),
            options.one_of("time_unit", TIME_UNITS),
            options.text("time_format"),
        )
        decimal, thousands = options.text("decimal"), options.text("thousands")
        try:
            roles.spelling = declared(decimal, thousands)
            check_times(options.name, roles.time_unit, roles.time_format)
        except ValueError as error:
            raise ConnectorError(_named(options.name, str(error))) from None
        roles.ignore += [name for name, kind in roles.types.items() if kind == "ignore"]
        return roles

    @property
    def needed(self) -> Roles:
        """Roles without which no event can be read: label, key and time."""
        return Roles(self.label, self.key, self.time)

    def check(self, source: str, columns: Iterable[str]) -> None:
        """Raise ConnectorError for roles of unknown columns, or for too many columns."""
        known = list(columns)
        if len(known) > MOST_COLUMNS:
            raise ConnectorError(
                f"{source}: has {len(known):,} columns, and a table may have {MOST_COLUMNS:,}: write rows that are "
                "mostly zeros as libsvm or JSON lines",
                "too wide",
            )
        asked = [("label", self.label), ("key", self.key), ("time", self.time)]
        asked += [("ignore", name) for name in self.ignore] + [("types", name) for name in self.types]
        for role, name in asked:
            if name is not None and name not in known:
                hint = "" if not any("," in each for each in known) else "; a name with commas goes in double quotes"
                what = f"no column {name!r} for `{role}`; the columns are {_listed(known)}{hint}"
                raise ConnectorError(f"{source}: {what}", "no column", option=role, column=name)

    def features(self, columns: Iterable[str]) -> list[str]:
        """Return the feature columns in order."""
        taken = {self.label, self.key, self.time, *self.unused}
        return [] if self.bare else [name for name in columns if name not in taken]

    @property
    def missing_numbers(self) -> frozenset[str]:
        """Missing-value markers of numbers and times."""
        return MISSING_NUMBERS if self.missing is MISSING else self.missing

    @property
    def missing_values(self) -> list[float]:
        """Finite numbers that are declared as missing values."""
        found = []
        for text in () if self.missing is MISSING else self.missing:
            with contextlib.suppress(ValueError):
                found.append(float(text))
        return sorted(value for value in found if math.isfinite(value))

    @property
    def unused(self) -> list[str]:
        """Columns that are ignored or hidden."""
        return self.ignore + self.hidden


def _listed(names: list[str], most: int = 50) -> str:
    more = f", ... ({len(names)} in all)" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def _named(source: str, message: str) -> str:
    return message if message.startswith(source) else f"{source}: {message}"


def check_times(source: str, unit: str | None, form: str | None) -> None:
    """Check that time options are valid and compatible.

    Raises
    ------
    ValueError
        If they are not.
    """
    if unit is not None and unit not in TIME_UNITS:
        raise ValueError(f"{source}: `time_unit` must be one of {', '.join(TIME_UNITS)}, got {unit!r}")
    if form is None:
        return
    if unit is not None:
        raise ValueError(f"{source}: `time_unit` is for numbers, `time_format` for texts: use one of them")
    try:
        datetime.strptime(_SAMPLE.strftime(form), form)
        fault = None if "%" in form else "it has no directives"
    except ValueError as error:
        fault = str(error)
    if fault is not None:
        raise ValueError(f"{source}: `time_format` {form!r} is not a format such as %d.%m.%Y %H:%M: {fault}")
