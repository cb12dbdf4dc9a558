"""JSON lines or a JSON array: one object per event; nested objects are flattened.

Labels keep their JSON types: ``"1"`` and ``1`` are two classes. ``true``, ``1`` and ``1.0`` are one class, as are
``false``, ``0`` and ``0.0``, because they are equal in Python. Integers beyond 64 bits stay exact as label, key or
declared category. ``NaN``, which Python writes although JSON does not define it, is missing.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from types import NoneType
from typing import Any

import numpy as np

from connectors.columns.cells import Bad, Labels, is_missing, number_of, shown
from connectors.columns.counters import warn_of_numbers
from connectors.columns.envelopes import Envelope, recognized
from connectors.columns.nested import Flattening
from connectors.columns.number_formats import LONGEST, repeated_texts
from connectors.columns.numbers import sampled
from connectors.columns.roles import Roles
from connectors.columns.text import Header, TextColumns
from connectors.errors import ConnectorError
from connectors.events import Events, joined
from connectors.options import Options
from connectors.outputs.files import open_lines
from connectors.outputs.results import JsonLines
from connectors.text.formats import SAMPLE, Records, TextFormat, line_records
from connectors.text.json_objects import JsonObjects
from connectors.text.source import TextSource

_NUMBERS = frozenset({int, float, NoneType})

FEWEST_EVENTS = 100
"""Number of events of a live stream that decide the formats of those after them.

Also the number of texts that decide a feature without a value in the first events.
"""
# Greatest number of such features at a time.
_MOST_LATE = 100
_NESTED = frozenset({dict, list})
_PERHAPS_MISSING = frozenset({str, NoneType})
_DOUBTFUL_LABELS = _NESTED | {float}
_CONVERT: dict[str, Callable[[Any], Any]] = {"number": number_of, "category": str}
# A list that begins with a list or a value. A line such as "[INFO] started" is none.
_LISTS = re.compile(
    r'\s*\[\s*(\[)?\s*(?:\[|(?:"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)\s*[],])'
)
_FIELD = re.compile(r'\s*"[^"]*"\s*:')


class JsonFormat(TextFormat):
    """One JSON object per line."""

    columns: JsonColumns
    needs_sample = False

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.columns = JsonColumns(options)

    def header(self, lines: Sequence[str], last: bool) -> int | None:
        """Return 0, because there is no header; refuse lists, and lines of one object."""
        if lines and (lines[0].strip() == "{" or lines[0].lstrip().startswith("[")):
            if len(lines) == 1 and not last:
                return None
            if lines[0].strip() == "{" and _FIELD.match("".join(lines[1:2])):
                what = "an object continues in line 2, but each must be on one line (or in an array of objects)"
                raise ConnectorError(f"{self._source}: {what}: convert the file: jq -c . {self._source}", "spread")
            if (found := _LISTS.match("".join(lines))) and not any("{" in line for line in lines):
                rows = "'.[] | @csv'" if found[1] else "@csv"
                way = (
                    f"jq -r {rows} {self._source} > FILE.csv, and then FILE.csv?header=no if the first row has no names"
                )
                raise ConnectorError(
                    f"{self._source}: rows are lists, but must be objects: convert the file: {way}", "lists"
                )
        return 0

    def records(self, lines: Sequence[str], bad: Mapping[int, str], last: bool, limit: int) -> Records:
        """Parse one object per line."""
        return line_records(lines, bad, limit, map(self.columns.objects.one, lines))

    def at_once(self, lines: Sequence[bytes]) -> Events | None:
        """Parse lines with one object each."""
        rows = self.columns.objects.all(lines)
        return None if rows is None else self.columns.read(rows)


class JsonColumns(TextColumns):
    """Convert objects, whose names may differ; null is a missing value.

    Nested values are flattened.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(Header([]), Roles.of(options), are_typed=True)
        self._missing_values = frozenset({None, *self._roles.missing, *self._roles.missing_values})
        self._may_be_missing = _PERHAPS_MISSING | ({int, float} if self._roles.missing_values else set())
        self._source, self._late_label = options.name, options.flag("late_label", False)
        self._convert = {name: kind for name, kind in self._roles.types.items() if kind in (*_CONVERT, "time")}
        roles = self._roles.label, self._roles.key, self._roles.time
        self.envelope = Envelope.of(options, self._roles.time)
        self.nested = Flattening(options, self._roles.unused, roles, self.numbers.notices)
        self._labels = Labels(self._roles.missing, self.numbers.notices, str)
        self._first: list[dict[str, Any]] = []  # replaced, not changed, because positions contain it
        self._decided = set[str]()  # features whose texts have been inspected, or that are not only texts
        self._late: dict[str, list[str]] = {}  # first texts of other features; lists are replaced, too
        categories = [name for name, kind in self._convert.items() if kind == "category"]
        exact = [name for name in (self._roles.label, self._roles.key, *categories) if name is not None]
        self.objects = JsonObjects(exact, self.envelope)

    def _decisions(self) -> dict[str, tuple[Any, str]]:
        late = {"inspected": (self, "_decided"), "late": (self, "_late")}
        skipped = {} if self.envelope is None else {"skipped": (self.envelope, "skipped")}
        return super()._decisions() | {"nested": (self.nested, "decided"), "first": (self, "_first")} | late | skipped

    @property
    def notices(self) -> list[str]:
        """Warnings so far, and what was skipped."""
        return super().notices + ([] if self.envelope is None else self.envelope.notices)

    @property
    def is_settled(self) -> bool:
        """Whether the first events were inspected."""
        return self.numbers.is_sampled

    def inspect(self, source: str, rows: Sequence[Any], whole: bool) -> None:
        """Check that the first events of a file contain the label, key and time.

        The check skips a label declared as late.
        """
        if not whole:
            return
        self._source = source
        bad: Bad = {}
        records = self._opened(rows, bad)
        if bad and len(bad) == len(rows):
            message = f"{source}: option `envelope`: of the first {len(rows):,} events, each is {bad[0]}"
            raise ConnectorError(message, "value", option="envelope")
        bad = {}
        rows = self._flat(records, bad)
        if not rows:  # all are skipped; the next ones decide
            return
        if len(bad) == len(rows):
            message = f"{source}: each of the first {len(rows):,} events is rejected, the first because {bad[0]}"
            raise ConnectorError(message, "nested")
        names = dict.fromkeys(name for row in rows for name in row)
        self._roles.check(source, names, ("key", "time"))
        if not self._late_label:
            self._check_label(names, len(rows))
        self._check_others(names, len(rows))
        times = [name for name, kind in self._convert.items() if kind == "time"]
        for name in dict.fromkeys(filter(None, [self._roles.time, *times])):
            self.times.decide(source, name, [row.get(name) for row in rows])
        self._inspect_values(rows, source)

    def _inspect_values(self, rows: Sequence[Any], source: str | None) -> None:
        """Decide which texts are numbers. Warn of counters and sentinels."""
        self.numbers.is_sampled = True
        self._decided.update(name for row in rows for name, value in row.items() if value is not None)
        with self.numbers.notices.together():
            columns: dict[str, list[Any]] = {}
            for name in self._roles.features(dict.fromkeys(chain.from_iterable(rows))):
                values = [row.get(name) for row in rows]
                kinds = set(map(type, values))
                if str in kinds and self._convert.get(name) in (None, "number"):
                    columns[name] = values
                elif name not in self._convert and kinds <= _NUMBERS:
                    sentinels = self._roles.missing_values
                    numbers = np.array([None if value in sentinels else value for value in values], dtype=np.float64)
                    warn_of_numbers(name, numbers, self.numbers.notices)
            texts = {name: [value for value in values if type(value) is str] for name, values in columns.items()}
            for name, kind in self.numbers.decide(source, texts).items():
                if kind == "category" and name not in self._convert:
                    among = [repr(value) for value in columns[name] if type(value) in (int, float)]
                    self.numbers.take_markers(name, repeated_texts(name, texts[name] + among))

    def _add_first(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add to the first events of a live stream, which decide the formats."""
        found = ({name: sampled(value) for name, value in row.items()} for row in filter(None, self._flat(rows, {})))
        self._first = [*self._first, *found]

    def _decide_live(self) -> None:
        """Decide the formats of a live stream if there are enough events."""
        if len(self._first) >= FEWEST_EVENTS:
            names = dict.fromkeys(chain.from_iterable(self._first))
            self._check_others(names, len(self._first), is_live=True)
            self._inspect_values(self._first, None)
            self._first = []

    def _check_others(self, names: Iterable[str], n: int, *, is_live: bool = False) -> None:
        """Check ignored and declared names; long streams only warn of unknown ones.

        These may appear later.
        """
        try:
            names_so_far = [*names, *self.nested.met]
            self._roles.check(self._source, names_so_far, ("ignore", "types"))
        except ConnectorError as error:
            if n < SAMPLE and not is_live:
                raise
            self.numbers.notices.warn(f"{error} (in the first {n:,} events; waiting for it)")

    def _opened(self, rows: Sequence[dict[str, Any]], bad: Bad) -> Sequence[dict[str, Any]]:
        """Return the first records, except skipped ones, and warn of envelopes."""
        if self.envelope is not None:
            return list(filter(None, self.envelope.unwrapped(rows, bad)[0]))
        if (kind := recognized(rows)) is not None:
            what = "change events of Debezium" if kind == "debezium" else "records of Kafka Connect with their schemas"
            self.numbers.notices.warn(
                f"the events look like {what}: --set envelope={kind} takes the records out of them"
            )
        return rows

    def _flat(self, rows: Sequence[dict[str, Any]], bad: Bad) -> Sequence[dict[str, Any]]:
        """Flatten rows if any value is nested."""
        return rows if _kinds(rows).isdisjoint(_NESTED) else self.nested.rows(rows, bad)

    def _check_label(self, names: Iterable[str], n: int) -> None:
        try:
            self._roles.check(self._source, names, ("label",))
        except ConnectorError as error:
            where = f"in the first {n:,} events; if it comes later, add ?late_label=yes to the source"
            raise ConnectorError(f"{error} ({where})", **vars(error)) from None

    def read(self, rows: Sequence[Any]) -> Events:
        """Convert objects to events.

        Removes label, key, time and ignored fields from the objects. The first events of a live stream are read one by
        one before they decide the formats of the others, so that formats do not depend on batch boundaries.
        """
        parts = []
        while not (self.numbers.is_sampled or self._roles.bare):
            wanted = FEWEST_EVENTS - len(self._first)
            first, rows = rows[:wanted], rows[wanted:]
            self._add_first(self._opened(first, {}))
            parts.append(self._read(first))
            self._decide_live()
            if not rows:
                return joined(parts)
        return joined([*parts, self._read(rows)])

    def _read(self, rows: Sequence[Any]) -> Events:
        """Convert objects in the formats known so far."""
        bad: Bad = {}
        if self.envelope is None:
            return self._events(rows, bad)
        rows, skipped = self.envelope.unwrapped(rows, bad)
        self.envelope.skipped.update(skipped.values())
        found = self._events(rows, bad)
        found.skipped = skipped.keys()
        return found

    def _events(self, rows: Sequence[Any], bad: Bad) -> Events:
        """Convert records that are in no envelope."""
        roles = self._roles
        if self.nested.has_roles:
            rows = self._flat(rows, bad)
        label, key, time = (
            None if name is None else [row.pop(name, None) for row in rows]
            for name in (roles.label, roles.key, roles.time)
        )
        labels = [None] * len(rows) if label is None else self._labels_of(str(roles.label), label, bad)
        times = None if time is None else self.times.milliseconds(str(roles.time), time, bad)
        if roles.bare:
            return Events([{} for _ in rows], labels, key, times, bad)
        return Events(self._cleaned(list(rows), bad), labels, key, times, bad)

    def _labels_of(self, name: str, cells: Any, bad: Bad) -> Sequence[Any]:
        """Return labels, None where missing; add rows with invalid ones to `bad`."""
        kinds = set(map(type, cells))
        if kinds == {str}:
            return list(map(self._labels.__getitem__, cells))
        if not kinds.isdisjoint(_DOUBTFUL_LABELS):
            for i, value in enumerate(cells):
                if type(value) in _NESTED:
                    bad.setdefault(i, f"the label '{name}' is nested: {shown(value)}")
                elif type(value) is float and math.isinf(value):
                    bad.setdefault(i, f"the label '{name}' is infinite")
        return [self._labels[value] if type(value) is str else value for value in cells]

    def _cleaned(self, rows: list[dict[str, Any]], bad: Bad) -> list[dict[str, Any]]:
        for name in self._roles.unused:
            for row in rows:
                row.pop(name, None)
        # Most rows need no change. One check of all values is faster than a check per row.
        kinds = _kinds(rows)
        if not kinds.isdisjoint(_NESTED):
            rows = self.nested.rows(rows, bad)
            kinds = _kinds(rows)
        if not kinds.isdisjoint(self._may_be_missing):
            missing = self._missing_values
            rows = [row if missing.isdisjoint(row.values()) else _with_none(row, missing) for row in rows]
        if not self.numbers.is_sampled:
            for row in rows:
                row |= {
                    name: self.numbers.value_alone(value)
                    for name, value in row.items()
                    if type(value) is str and name not in self._convert
                }
        starts = self._decide_late(rows) if self.numbers.is_sampled and str in kinds else {}
        for name, texts in self.numbers.markers.items():
            for row in rows[starts.get(name, 0) :]:
                if type(value := row.get(name)) is str and value.strip() in texts:
                    row[name] = None
        for name, kind in (dict.fromkeys(self.numbers.formatted, "number") | self._convert).items():
            start = starts.get(name, 0)
            for i, row in enumerate(rows[start:], start):
                self._convert_one(row, name, kind, i, bad)
        return rows

    def _decide_late(self, rows: Sequence[dict[str, Any]]) -> dict[str, int]:
        """Read texts of features without a value in the first events.

        The first texts of a feature decide. Before, each is read alone, as in the first events of a live stream.
        Returns the first row after the decision, by feature.
        """
        starts: dict[str, int] = {}
        if set[str]().union(*rows) <= self._decided:  # nearly always
            return starts
        late = self._late.copy()
        for i, row in enumerate(rows):
            for name in [name for name in row if name not in self._decided and name not in self._convert]:
                text = row[name]
                if type(text) is not str or is_missing(text, self._roles.missing_numbers):
                    continue
                if name not in late and len(late) == _MOST_LATE:  # names may be new in every event
                    continue
                late[name] = [*late.get(name, ()), text[: LONGEST + 1]]
                row[name] = self.numbers.value_alone(text)
                if len(late[name]) == FEWEST_EVENTS:
                    self.numbers.decide(None, {name: late.pop(name)})
                    self._decided.add(name)
                    starts[name] = i + 1
        self._late = late
        return starts

    def _convert_one(self, row: dict[str, Any], name: str, kind: str, i: int, bad: Bad) -> None:
        try:
            if name in row and kind == "time":
                row |= self.times.row(name, row[name], self._roles.missing_numbers)
                del row[name]
            elif row.get(name) is None:
                return
            elif kind == "number" and type(row[name]) is str and is_missing(row[name], self._roles.missing_numbers):
                row[name] = None
            elif name in self.numbers.formatted and isinstance(row[name], str):
                row[name] = self.numbers.formatted[name][row[name]]
            else:
                row[name] = _CONVERT[kind](row[name])
        except (KeyError, TypeError, ValueError) as error:
            if kind == "number" and isinstance(row[name], str):
                self.numbers.count_text(name, row[name])
            bad.setdefault(i, str(error) if kind == "time" else f"'{name}' is not a {kind}: {shown(row[name])}")


def _kinds(rows: Sequence[dict[str, Any]]) -> set[type]:
    return set(map(type, chain.from_iterable(map(dict.values, rows))))


def _with_none(row: dict[str, Any], missing: frozenset[Any]) -> dict[str, Any]:
    return {name: None if value in missing else value for name, value in row.items()}


open_json = functools.partial(TextSource, make=JsonFormat, elements=True)
write_json = functools.partial(open_lines, JsonLines())
