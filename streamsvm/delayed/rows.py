"""Features as they were when they were predicted on, in arrays: what is learned late is what was seen."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from connectors.events import Features, SparseRows, rows_of
from streamsvm.delayed.ragged import Ragged
from streamsvm.features.rows import Floats, Ints
from streamsvm.models import ArchiveError
from streamsvm.models.archive import DAMAGED, decode_label, encode_label

# What stands in place of a layout where a row is sparse, or is an object of its own with names and values, or is not
# there any more.
SPARSE, OWN, NONE = -1, -2, -3
_MOST_LAYOUTS = 1024

Names = tuple[Hashable, ...]


@dataclass(slots=True)
class Packed:
    """Rows in arrays.

    Parameters
    ----------
    layouts
        The layout of each row.
    words, word_lengths
        The numbers of all rows, and how many each has.
    texts
        The bytes of each row.
    objects
        Rows that wait as the objects they are, for models that may read more than numbers and texts of them.
    """

    layouts: Ints
    words: Floats
    word_lengths: Ints
    texts: list[bytes]
    objects: list[Any] = field(default_factory=list)

    @classmethod
    def of_objects(cls, features: Any, n: int) -> Packed:
        """Rows of which no bytes are counted."""
        return cls(np.full(n, NONE), np.zeros(0), np.zeros(n, np.int64), [], rows_of(features, n))

    @property
    def text_bytes(self) -> tuple[NDArray[np.uint8], Any]:
        """The bytes of all rows, and the length of each."""
        return np.frombuffer(b"".join(self.texts), np.uint8), [len(text) for text in self.texts] or 0

    @property
    def sizes(self) -> Ints:
        """The bytes of each row."""
        return 8 * self.word_lengths + np.array([len(text) for text in self.texts] or [0], np.int64)

    def take(self, rows: Ints) -> Packed:
        """Some of the rows, by number."""
        lengths, n = self.word_lengths, len(self.layouts)
        if n and (lengths == lengths[0]).all():
            words = self.words.reshape(n, -1)[rows].reshape(-1)
        else:
            held = Ragged(np.float64)
            held.add(self.words, lengths)
            words, _ = held.take(rows)
        texts, objects = ([held[i] for i in rows.tolist()] if held else [] for held in (self.texts, self.objects))
        return Packed(self.layouts[rows], words, lengths[rows], texts, objects)


class Layouts:
    """The sets of names that rows have: what stands where in a row that is only numbers.

    A row of numbers alone is one number a name, NaN where missing. One with texts is JSON of its values, a sparse one
    its names and its values. Where rows come with more sets of names than 1,024 the others are kept with their names.
    """

    def __init__(self) -> None:
        self.names: list[tuple[Names, bool]] = []
        """Names, and whether their values are numbers alone."""
        self._numbers: dict[tuple[Names, bool], int] = {}

    def number(self, names: Names, plain: bool) -> int:
        """The number of a layout, `OWN` where there can be no more."""
        found = self._numbers.get((names, plain))
        if found is None:
            if len(self.names) >= _MOST_LAYOUTS:
                return OWN
            found = self._numbers[names, plain] = len(self.names)
            self.names.append((names, plain))
        return found

    def pack(self, features: Features, n: int) -> Packed:
        """All n rows of features."""
        if isinstance(features, SparseRows):
            return _pack_sparse(features)
        if isinstance(features, list):
            return self._pack_dicts(features)
        if all(column.dtype.kind == "f" for column in features.values()):
            X = np.empty((n, len(features)))
            for j, column in enumerate(features.values()):
                X[:, j] = column
            return Packed(np.full(n, self.number(tuple(features), True)), X.reshape(-1), np.full(n, X.shape[1]), [])
        names = tuple(features)
        values = zip(*(column.tolist() for column in features.values()), strict=True)
        return self._pack_dicts([dict(zip(names, row, strict=True)) for row in values])

    def _pack_dicts(self, rows: Sequence[Mapping[Any, Any]]) -> Packed:
        layouts: list[int] = []
        lengths: list[int] = []
        words: list[float] = []
        texts: list[bytes] = []
        for x in rows:
            names = tuple(x)
            numbers = _numbers(x.values())
            layout = self.number(names, numbers is not None)
            if layout == OWN:
                numbers = None
                text = json.dumps([[encode_label(name), value] for name, value in x.items()]).encode()
            else:
                text = b"" if numbers is not None else _json(list(x.values()))
            layouts.append(layout)
            lengths.append(0 if numbers is None else len(numbers))
            words += numbers or ()
            texts.append(text)
        return Packed(np.array(layouts, np.int64), np.array(words, np.float64), np.array(lengths, np.int64), texts)

    def unpack(self, layouts: Ints, words: Floats, word_lengths: Ints, texts: Sequence[bytes]) -> Features:
        """Rows as they were: as a table where all have the same names and only numbers."""
        kinds = set(layouts.tolist())
        if kinds == {SPARSE}:
            return _unpack_sparse(words, word_lengths)
        if len(kinds) == 1 and (layout := kinds.pop()) >= 0 and self.names[layout][1]:
            X = words.reshape(len(layouts), -1)
            return {name: X[:, j] for j, name in enumerate(self.names[layout][0])}
        ends = np.cumsum(word_lengths).tolist()
        starts = [0, *ends[:-1]]
        return [
            self._row(layout, words[a:b], text)
            for layout, a, b, text in zip(layouts.tolist(), starts, ends, texts, strict=True)
        ]

    def _row(self, layout: int, words: Floats, text: bytes) -> dict[Any, Any]:
        if layout == SPARSE:
            n = len(words) // 2
            return dict(zip(words[:n].view(np.int64).tolist(), words[n:].tolist(), strict=True))
        try:
            return self._spelled(layout, words, text)
        except DAMAGED as error:
            raise ArchiveError(f"an event that waits is damaged: {error}") from error

    def _spelled(self, layout: int, words: Floats, text: bytes) -> dict[Any, Any]:
        """A row that has names of its own, or values in a text."""
        if layout == OWN:
            return {_name(name): value for name, value in json.loads(text)}
        names, plain = self.names[layout]
        values = words.tolist() if plain else _values(text)
        return {name: value for name, value in zip(names, values, strict=True) if value is not None and value == value}

    def state(self) -> list[Any]:
        """All of it, for JSON."""
        return [[[encode_label(name) for name in names], plain] for names, plain in self.names]

    def restore(self, state: Sequence[Any]) -> None:
        """Take over what `state` gave."""
        for names, plain in state:
            self.number(tuple(map(_name, names)), bool(plain))


def _name(value: Any) -> Any:
    """The name of a feature; NaN, which no event can have had, is refused."""
    name = decode_label(value)
    if name != name:
        raise ArchiveError("a feature of an event that waits is named NaN")
    return name


def _values(text: bytes) -> list[Any]:
    try:
        values = orjson.loads(text)
    except orjson.JSONDecodeError:  # NaN, or half a surrogate pair
        values = json.loads(text)
    return list(values)


def taken(features: Features, rows: Ints) -> Features:
    """Some rows."""
    if isinstance(features, list):
        return [features[i] for i in rows.tolist()]
    if isinstance(features, SparseRows):
        lengths = np.diff(features.indptr)[rows]
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        entries = np.arange(int(indptr[-1])) + np.repeat(features.indptr[rows] - indptr[:-1], lengths)
        return SparseRows(indptr, features.indices[entries], features.values[entries])
    return {name: column[rows] for name, column in features.items()}


def stacked(parts: Sequence[tuple[Features, int]]) -> Features:
    """Rows of several kinds, so many of each, one after the other."""
    given = [(features, n) for features, n in parts if n]
    if len(given) < 2:
        return given[0][0] if given else []
    sparse = [features for features, _ in given if isinstance(features, SparseRows)]
    tables = [features for features, _ in given if isinstance(features, dict)]
    if len(sparse) == len(given):
        return _stacked_sparse(sparse)
    if len(tables) == len(given) and len({tuple(table) for table in tables}) == 1:
        return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    return [row for features, n in given for row in rows_of(features, n)]


def _stacked_sparse(parts: Sequence[SparseRows]) -> SparseRows:
    sizes = np.cumsum([0, *(part.indptr[-1] for part in parts)])
    indptr = [part.indptr[1:] + size for part, size in zip(parts, sizes, strict=False)]
    return SparseRows(
        np.concatenate([np.zeros(1, np.int64), *indptr]),
        np.concatenate([part.indices for part in parts]),
        np.concatenate([part.values for part in parts]),
    )


def in_order(features: Features, order: Ints) -> Features:
    """All rows, in an order."""
    return features if (order == np.arange(len(order))).all() else taken(features, order)


def split(data: NDArray[Any], lengths: Ints) -> list[bytes]:
    """Texts that stand one after the other."""
    whole, ends = data.tobytes(), np.cumsum(lengths).tolist()
    return [whole[end - n : end] for end, n in zip(ends, lengths.tolist(), strict=True)]


def _pack_sparse(features: SparseRows) -> Packed:
    starts, lengths = features.indptr[:-1], np.diff(features.indptr)
    words = [
        part
        for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)
        for part in (features.indices[a : a + n].view(np.float64), features.values[a : a + n])
    ]
    flat = np.concatenate(words) if words else np.zeros(0)
    return Packed(np.full(len(lengths), SPARSE), flat, 2 * lengths, [])


def _unpack_sparse(words: Floats, lengths: Ints) -> SparseRows:
    halves = lengths // 2
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(halves)])
    within = np.arange(int(halves.sum())) - np.repeat(indptr[:-1], halves)
    names = np.repeat(2 * indptr[:-1], halves) + within
    return SparseRows(indptr, words.view(np.int64)[names], words[names + np.repeat(halves, halves)])


def _numbers(values: Any) -> list[float] | None:
    """Values as numbers, NaN where missing; None where there are texts."""
    numbers = []
    for value in values:
        if value is None:
            numbers.append(float("nan"))
        elif isinstance(value, str):
            return None
        else:
            numbers.append(float(value))
    return numbers


def _json(values: list[Any]) -> bytes:
    try:
        return orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:  # texts that are no UTF-8, or numbers beyond 64 bits
        return json.dumps(
            [value if isinstance(value, str) or value is None else float(value) for value in values]
        ).encode()
