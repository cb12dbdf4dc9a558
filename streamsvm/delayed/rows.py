"""Features in arrays, stored at prediction time for learning when the label arrives."""

from __future__ import annotations

import json
import struct
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

# Instead of a layout: a sparse row; a row with its own names and values; a row that is no longer stored.
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
        Numbers of all rows, concatenated, and the count of each row.
    texts
        String values of each row, as bytes.
    objects
        Rows stored as objects, for models that read more than numbers and strings.
    """

    layouts: Ints
    words: Floats
    word_lengths: Ints
    texts: list[bytes]
    objects: list[Any] = field(default_factory=list)

    @classmethod
    def of_objects(cls, features: Any, n: int) -> Packed:
        """Return rows as objects, whose bytes are not counted."""
        return cls(np.full(n, NONE), np.zeros(0), np.zeros(n, np.int64), [], rows_of(features, n))

    @property
    def text_bytes(self) -> tuple[NDArray[np.uint8], Any]:
        """Bytes of all rows, and the length of each."""
        return np.frombuffer(b"".join(self.texts), np.uint8), [len(text) for text in self.texts] or 0

    @property
    def sizes(self) -> Ints:
        """Number of bytes of each row."""
        return 8 * self.word_lengths + np.array([len(text) for text in self.texts] or [0], np.int64)

    def take(self, rows: Ints) -> Packed:
        """Return the rows with the given numbers."""
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
    """Layouts of rows, which assign feature names to their numbers.

    A row of numbers is stored as one number per name, NaN if missing. A row with strings is stored as JSON of its
    values, a sparse row as indices and values. Beyond 1,024 sets of names, rows are stored with their names.
    """

    def __init__(self) -> None:
        self.names: list[tuple[Names, bool]] = []
        """Names, and whether all values are numbers."""
        self._numbers: dict[tuple[Names, bool], int] = {}

    def number(self, names: Names, plain: bool) -> int:
        """Return the number of a layout, or `OWN` if there are too many."""
        found = self._numbers.get((names, plain))
        if found is None:
            if len(self.names) >= _MOST_LAYOUTS:
                return OWN
            found = self._numbers[names, plain] = len(self.names)
            self.names.append((names, plain))
        return found

    def pack_one(self, x: Mapping[Any, Any]) -> tuple[int, bytes] | None:
        """Return the layout and the numbers of a row; None for a row that is stored in another way."""
        try:
            words = struct.pack(f"{len(x)}d", *x.values())
        except (struct.error, TypeError, ValueError, OverflowError):
            return None
        layout = self.number(tuple(x), True)
        return None if layout == OWN else (layout, words)

    def pack(self, features: Features, n: int) -> Packed:
        """Pack n rows of features."""
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
        """Restore rows, as a table if all have equal names and only numbers."""
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
        """Decode a row that has its own names, or values in JSON."""
        if layout == OWN:
            return {_name(name): value for name, value in json.loads(text)}
        names, plain = self.names[layout]
        values = words.tolist() if plain else _values(text)
        return {name: value for name, value in zip(names, values, strict=True) if value is not None and value == value}

    def state(self) -> list[Any]:
        """Return the state as JSON values."""
        return [[[encode_label(name) for name in names], plain] for names, plain in self.names]

    def restore(self, state: Sequence[Any]) -> None:
        """Restore the result of `state`."""
        for names, plain in state:
            self.number(tuple(map(_name, names)), bool(plain))


def _name(value: Any) -> Any:
    """Decode the name of a feature; NaN is refused."""
    name = decode_label(value)
    if name != name:
        raise ArchiveError("a feature of an event that waits is named NaN")
    return name


def _values(text: bytes) -> list[Any]:
    try:
        values = orjson.loads(text)
    except orjson.JSONDecodeError:  # NaN, or an unpaired surrogate
        values = json.loads(text)
    return list(values)


def taken(features: Features, rows: Ints) -> Features:
    """Return the given rows."""
    if isinstance(features, list):
        return [features[i] for i in rows.tolist()]
    if isinstance(features, SparseRows):
        lengths = np.diff(features.indptr)[rows]
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        entries = np.arange(int(indptr[-1])) + np.repeat(features.indptr[rows] - indptr[:-1], lengths)
        return SparseRows(indptr, features.indices[entries], features.values[entries])
    return {name: column[rows] for name, column in features.items()}


def stacked(parts: Sequence[tuple[Features, int]]) -> Features:
    """Concatenate rows of several kinds, given with their numbers."""
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
    """Return the rows in the given order."""
    return features if (order == np.arange(len(order))).all() else taken(features, order)


def split(data: NDArray[Any], lengths: Ints) -> list[bytes]:
    """Split concatenated bytes into strings."""
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
    """Return values as floats, NaN if missing; None if any is a string."""
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
    except TypeError:  # strings that are not valid UTF-8, or numbers beyond 64 bits
        return json.dumps(
            [value if isinstance(value, str) or value is None else float(value) for value in values]
        ).encode()
