"""Nested records as columns: objects become `a.b`, lists their length and declared statistics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
    """Return the options `flatten` and `lists`: the number of levels, and the statistics of lists."""
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
        Names of label, key and time, which may be those of nested fields. These fields are never flattened.
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
        self.depth, self.statistics = nested_options(options)
        self.ignored, self._roles, self._notices = frozenset(ignored), frozenset(filter(None, roles)), notices
        self.apart = self.ignored | self._roles
        self.has_roles = any("." in name for name in self._roles)
        """Whether a label, key or time may be nested."""
        self.met: set[str] = set()
        self.known: dict[str, None] = {}
        """Columns from nested fields so far."""
        self.added: list[tuple[_Names, str]] = []
        """Columns of the current record that are not known yet."""
        self._top = _TopNames(self, "")

    @property
    def decided(self) -> list[str]:
        """Names of the columns from nested fields so far; part of positions."""
        return list(self.known)

    def restore(self, decided: Sequence[str]) -> None:
        """Restore the names in a position."""
        self.known = dict.fromkeys(decided)
        self._top = _TopNames(self, "")

    def rows(self, rows: Iterable[dict[str, Any]], bad: Bad) -> list[dict[str, Any]]:
        """Flatten records. Those that cannot be flattened are added to `bad`, and are empty."""
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
        try:
            self._add(row, self._top, self.depth, flat)
        except ValueError:
            self.added, self._top = [], _TopNames(self, "")
            raise
        if self.added:
            self._keep_added()
        return flat

    def _keep_added(self) -> None:
        added, self.added = self.added, []
        with self._notices.together():
            for names, key in added:
                self.known[names.full(key)] = None
                self._notices.say(*names.notices(self.statistics))

    def _add(self, value: Mapping[str, Any], names: _Names, depth: int, flat: dict[str, Any]) -> None:
        """Add the fields of an object to a flat record."""
        for key, item in value.items():
            if type(item) in _NESTED:
                below = names.below.get(key)
                if below is None:
                    below = names.make_below(key)
                if depth and below.is_plain and type(item) is dict:
                    self._add(item, below, depth - 1, flat)
                else:
                    self._add_others(item, below, depth, flat)
            elif (column := names[key]) is not None:
                if column in flat:
                    raise ValueError(_twice(column))
                flat[column] = item

    def _add_others(self, item: Any, names: _Names, depth: int, flat: dict[str, Any]) -> None:
        """Add a list, or an object that is not flattened."""
        name = names.prefix
        if not names.is_plain:
            if name not in self.ignored:
                flat[name] = item
        elif depth == 0:
            raise ValueError(self._too_deep(name, item))
        else:
            self._add_list(item, names, flat)

    def _add_list(self, items: list[Any], names: _Names, flat: dict[str, Any]) -> None:
        names.is_list = True
        for key, value in statistics(items, self.statistics).items():
            if (column := names[key]) in flat:
                raise ValueError(_twice(str(column)))
            if column is not None:
                flat[column] = value

    def _too_deep(self, name: str, value: Any) -> str:
        if self.depth == MOST_LEVELS:
            return f"field '{name}' has more than {MOST_LEVELS} levels; leave it out (--ignore {name})"
        way = f"leave it out (--ignore {name}), or flatten more levels (--set flatten={self.depth + 1})"
        return f"field '{name}' is nested: {shown(value)}; {way}"


class _Names(dict[str, "str | None"]):
    """Columns of the fields of an object by key, None if ignored. Unknown columns are registered."""

    def __init__(self, owner: Flattening, prefix: str, parent: _Names | None = None) -> None:
        super().__init__()
        self._owner, self.prefix, self._parent = owner, prefix, parent
        self.is_plain = prefix not in owner.apart
        self.below: dict[str, _Names] = {}
        """Names of the fields in nested fields."""
        self.is_list = False

    def __missing__(self, key: str) -> str | None:
        owner, name = self._owner, self.full(key)
        if name in owner.ignored:
            owner.met.add(name)
            self[key] = None
            return None
        if name not in owner.known:
            if len(owner.known) + len(owner.added) >= MOST_NAMES:
                raise ValueError(
                    f"more than {MOST_NAMES:,} columns from nested fields; leave out a field with many keys "
                    f"(--ignore {self._widest()})"
                )
            owner.added.append((self, key))
        self[key] = name
        return name

    def _widest(self) -> str:
        """Return the name of the field around this object that has most keys."""
        names, around = self, self._parent
        while around is not None and around.prefix:
            names = max(names, around, key=lambda each: len(each) + len(each.below))
            around = around._parent
        return names.prefix

    def full(self, key: str) -> str:
        """Return the name of a field of this object."""
        return f"{self.prefix}.{key}"

    def make_below(self, key: str) -> _Names:
        """Create the names of the fields in a nested field."""
        if len(self.below) >= MOST_NAMES:
            self.below.clear()
        made = self.below[key] = _Names(self._owner, self.full(key), self)
        if made.prefix in self._owner.ignored:
            self._owner.met.add(made.prefix)
        return made

    def notices(self, wanted: Collection[str]) -> Iterator[Notice]:
        """Yield warnings: the field is a list, or the keys of an object look like data."""
        if self.is_list:
            yield list_notice(self.prefix, wanted)
        for names in (self, self._parent):
            if names is not None and names.prefix and len(names) + len(names.below) >= _MANY_KEYS:
                form = (
                    f"field '{{name}}' has {_MANY_KEYS:,} different keys so far, each a column: --ignore {{name}} "
                    f"drops them if they are data; events beyond {MOST_NAMES:,} nested columns are rejected"
                )
                yield Notice.of(form, names.prefix)


class _TopNames(_Names):
    """Names of the fields of a record, which are not registered."""

    def __missing__(self, key: str) -> str | None:
        if key in self._owner.ignored:
            self._owner.met.add(key)
            self[key] = None
            return None
        if len(self) < MOST_NAMES:
            self[key] = key
        return key

    def full(self, key: str) -> str:
        """Return the name of a field of the record."""
        return key


def statistics(items: Sequence[Any], wanted: Collection[str]) -> dict[str, Any]:
    """Return the wanted statistics of a list; those of numbers only if it contains no other values.

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


def holder(row: Any, name: str) -> tuple[dict[str, Any], str] | None:
    """Return the object that contains a field, which may be nested, and its key in there.

    Examples
    --------
    >>> holder({"a": {"b": {"c": 1}}}, "a.b.c")
    ({'c': 1}, 'c')
    """
    if type(row) is not dict:
        return None
    if name in row:
        return row, name
    at = name.find(".")
    while at >= 0:
        found = holder(row.get(name[:at]), name[at + 1 :])
        if found is not None:
            return found
        at = name.find(".", at + 1)
    return None


def _twice(name: str) -> str:
    return f"two fields are named '{name}', one of them nested: rename one, or leave both out (--ignore {name})"
