"""Nested records as columns: objects become `a.b`, lists their statistics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import NoneType
from typing import Any

from connectors.columns.cells import Bad, shown
from connectors.notices import Notice, Notices
from connectors.options import Options

MOST_LEVELS = 100
"""Maximum depth of a record."""
MOST_NAMES = 10_000
"""Maximum number of columns of a stream that come from nested fields."""
_MANY_KEYS = 1000  # of one object, before a warning that its keys may be data
_NESTED = frozenset({dict, list})
_NUMBERS = frozenset({int, float, bool})
_SCALARS = _NUMBERS | {str}
STATISTICS = ("length", "mean", "min", "max", "first", "last")
"""Statistics of a list that `lists` may name."""


def nested_options(options: Options) -> tuple[int, list[str]]:
    """Return the options `flatten`, a number of levels, and `lists`, the statistics."""
    return min(options.integer("flatten", MOST_LEVELS), MOST_LEVELS), options.several("lists", STATISTICS, ("length",))


class Flattening:
    """Convert nested records to flat ones, with names such as ``a.b``.

    Parameters
    ----------
    options
        The options `flatten` (number of levels, all by default) and `lists` (statistics of lists).
    ignored
        Names of fields to drop, with everything in them.
    roles
        Names of label, key and time, which may be nested fields. These fields are never flattened.
    notices
        Collection of warnings.

    Attributes
    ----------
    met
        Ignored names that occurred.

    Examples
    --------
    >>> flattening = Flattening(Options("a.jsonl", {"lists": "length,mean"}), ["a.c"], [], Notices())
    >>> flattening.row({"x": 1, "a": {"b": {"d": None}, "c": {"e": 2}}, "z": [1, 2, 6]})
    {'x': 1, 'a.b.d': None, 'z.length': 3, 'z.mean': 3.0}
    >>> flattening.row({"a": {"b": 1}, "a.b": 2})
    Traceback (most recent call last):
    ValueError: two fields are named 'a.b', one of them nested: rename one, or leave both out (--ignore a.b)
    """

    def __init__(self, options: Options, ignored: Iterable[str], roles: Iterable[str | None], notices: Notices) -> None:
        self._depth, self._statistics = nested_options(options)
        self._ignored, self._notices = frozenset(ignored), notices
        named = frozenset(filter(None, roles))
        self._apart = self._ignored | named
        self.has_roles = any("." in name for name in named)
        """Whether a label, key or time may be nested."""
        self.met: set[str] = set()
        self.known: dict[str, None] = {}
        """Columns from nested fields so far."""
        self._seen: set[str] = set()  # these and others
        self._keys: dict[str, set[str]] = {}  # of each nested object
        self._lists: set[str] = set()

    @property
    def decided(self) -> list[str]:
        """Names of the columns from nested fields so far; part of positions."""
        return list(self.known)

    @decided.setter
    def decided(self, names: Sequence[str]) -> None:
        self.known, self._seen, self._keys = {}, set(), {}
        self._keep(names)

    def rows(self, rows: Iterable[dict[str, Any]], bad: Bad) -> list[dict[str, Any]]:
        """Flatten records.

        A record that cannot be flattened is empty, and its reason is added to `bad`.
        """
        flat = []
        for i, row in enumerate(rows):
            try:
                flat.append(self.row(row))
            except ValueError as error:
                bad.setdefault(i, str(error))
                flat.append({})
        return flat

    def row(self, row: dict[str, Any]) -> dict[str, Any]:
        """Flatten a record.

        Raises
        ------
        ValueError
            If two fields have one name, or there are too many levels or names.
        """
        flat: dict[str, Any] = {}
        self._add(row, "", self._depth, flat)
        if not flat.keys() <= self._seen:
            self._take_names(row, [name for name in flat if name not in self._seen])
        return flat

    def _take_names(self, row: dict[str, Any], names: Sequence[str]) -> None:
        """Register new names of a record; warn of lists, and of keys that look like data."""
        new = [name for name in names if name not in row or type(row[name]) in _NESTED]
        if len(self.known) + len(new) > MOST_NAMES:
            keys = _keys_of(new, {name: set(keys) for name, keys in self._keys.items()})
            raise ValueError(
                f"more than {MOST_NAMES:,} columns from nested fields; leave out a field with many keys "
                f"(--ignore {max(keys, key=lambda name: len(keys[name]))})"
            )
        if len(self._seen) > 2 * MOST_NAMES:
            self._seen = set(self.known)
        self._seen.update(names)
        self._keep(new)
        with self._notices.together():
            for name in dict.fromkeys(name.rpartition(".")[0] for name in new):
                if name in self._lists:
                    self._notices.warn(list_notice(name, self._statistics))
            for name in [name for name, keys in self._keys.items() if len(keys) >= _MANY_KEYS] if new else ():
                form = (
                    f"field '{{name}}' has {_MANY_KEYS:,} different keys so far, each a column: --ignore {{name}} "
                    f"drops them if they are data; events beyond {MOST_NAMES:,} nested columns are rejected"
                )
                self._notices.warn(Notice.of(form, name))

    def _keep(self, names: Sequence[str]) -> None:
        self.known |= dict.fromkeys(names)
        self._seen.update(names)
        _keys_of(names, self._keys)

    def _add(self, value: Mapping[str, Any], prefix: str, depth: int, flat: dict[str, Any]) -> None:
        """Add the fields of an object to a flat record."""
        for key, item in value.items():
            name = prefix + key
            if type(item) in _NESTED and name not in self._apart:
                if depth == 0:
                    raise ValueError(self._too_deep(name, item))
                if type(item) is dict:
                    self._add(item, name + ".", depth - 1, flat)
                else:
                    self._lists.add(name)
                    self._add(statistics(item, self._statistics), name + ".", depth, flat)
            elif name in self._ignored:
                self.met.add(name)
            elif name in flat:
                way = f"rename one, or leave both out (--ignore {name})"
                raise ValueError(f"two fields are named '{name}', one of them nested: {way}")
            else:
                flat[name] = item

    def _too_deep(self, name: str, value: Any) -> str:
        if self._depth == MOST_LEVELS:
            return f"field '{name}' has more than {MOST_LEVELS} levels; leave it out (--ignore {name})"
        way = f"leave it out (--ignore {name}), or flatten more levels (--set flatten={self._depth + 1})"
        return f"field '{name}' is nested: {shown(value)}; {way}"


def _keys_of(names: Iterable[str], found: dict[str, set[str]]) -> dict[str, set[str]]:
    """Add the keys of nested objects to those found before, by the object's name."""
    for name in names:
        prefix, _, key = name.rpartition(".")
        while prefix and key not in found.setdefault(prefix, set()):
            found[prefix].add(key)
            prefix, _, key = prefix.rpartition(".")
    return found


def statistics(items: Sequence[Any], wanted: Collection[str]) -> dict[str, Any]:
    """Return the requested statistics of a list.

    The mean, minimum and maximum are computed only for lists of numbers.

    Examples
    --------
    >>> statistics([1, None, 3], ["length", "mean", "max", "last"])
    {'length': 3, 'mean': 2.0, 'max': 3, 'last': 3}
    >>> statistics(["a", "b"], ["length", "mean", "first"])
    {'length': 2, 'first': 'a'}
    """
    found: dict[str, Any] = {"length": len(items)}
    if len(wanted) > 1 or "length" not in wanted:
        kinds = set(map(type, items)) - {NoneType}
        if kinds and kinds <= _NUMBERS:
            numbers = [item for item in items if item is not None]
            found |= {"mean": sum(numbers) / len(numbers), "min": min(numbers), "max": max(numbers)}
        if kinds and kinds <= _SCALARS:
            found |= {"first": items[0], "last": items[-1]}
    return {name: found[name] for name in wanted if name in found}


def list_notice(name: str, wanted: Collection[str]) -> Notice:
    """Return the warning that a field is a list and only its statistics are features."""
    form = (
        f"field '{{name}}' is a list, and only its statistics are features ({', '.join(wanted)}): "
        f"--set lists={','.join(STATISTICS)} selects them, --ignore {{name}} drops the list"
    )
    return Notice.of(form, name)
