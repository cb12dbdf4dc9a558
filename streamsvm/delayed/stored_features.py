"""Features in arrays, stored at prediction time for later learning."""

from __future__ import annotations

import contextlib
import json
import math
import struct
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from connectors.columns.absent import is_absent
from connectors.columns.strings import StringColumn
from connectors.events import Features, SparseRows, picked, rows_of
from streamsvm.features.rows import Floats, Ints
from streamsvm.labels import is_nan
from streamsvm.models import ArchiveError
from streamsvm.models.archive import CORRUPT_ERRORS, decode_label, encode_label

# Instead of a layout: a sparse row; a row with its own names and values; a row that is stored as an object.
SPARSE, OWN, OBJECT = -1, -2, -3
_MOST_LAYOUTS = 1024

Names = tuple[Hashable, ...]


class Packed(NamedTuple):
    """Rows in arrays.

    Parameters
    ----------
    layouts
        The layout of each row.
    words, lengths
        Numbers of all rows, concatenated, and the count of each row.
    objects
        Rows stored as objects, for models that read more than numbers and strings.
    """

    layouts: Ints
    words: Floats
    lengths: Ints
    objects: Sequence[Any] = ()


def gather(words: NDArray[Any], starts: Ints, lengths: Ints) -> NDArray[Any]:
    """Return spans of an array, concatenated.

    Examples
    --------
    >>> gather(np.arange(10), np.array([7, 0]), np.array([2, 3])).tolist()
    [7, 8, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    return words[np.repeat(starts - ends + lengths, lengths) + np.arange(int(ends[-1]) if len(ends) else 0)]


class PaddedKeys(NamedTuple):
    """Keys in UTF-8, each filled up with zeros to whole words.

    Parameters
    ----------
    words
        Words of all keys, concatenated.
    sizes, lengths
        Number of bytes and of words of each key.

    Examples
    --------
    >>> keys = PaddedKeys.of(["a", "", "bcdefghij"])
    >>> keys.words.tobytes(), keys.sizes.tolist(), keys.lengths.tolist()
    (b'a\\x00\\x00\\x00\\x00\\x00\\x00\\x00bcdefghij\\x00\\x00\\x00\\x00\\x00\\x00\\x00', [1, 0, 9], [1, 0, 2])
    """

    words: Ints
    sizes: Ints
    lengths: Ints

    @classmethod
    def of(cls, texts: Sequence[str]) -> PaddedKeys:
        """Convert texts. Lone surrogates are kept."""
        column = StringColumn.of(texts)
        sizes, lengths = column.lengths, -(-column.lengths // 8)
        data, before = np.zeros(8 * int(lengths.sum()), np.uint8), 8 * lengths - sizes  # zeros after each key
        data[np.arange(len(column.data)) + np.repeat(np.cumsum(before) - before, sizes)] = column.data
        return cls(data.view(np.int64), sizes, lengths)


def padded(data: bytes, fill: bytes = b"\0") -> bytes:
    """Fill up bytes to whole words."""
    return data + -len(data) % 8 * fill


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

    def pack_one(self, x: Mapping[Any, Any]) -> tuple[int, bytes]:
        """Return the layout and the words of a row."""
        values, row = x.values(), None
        with contextlib.suppress(struct.error, TypeError, ValueError):
            row = struct.pack(f"{len(x)}d", *values)
        if row is None and not any(isinstance(value, str) for value in values):
            row = struct.pack(f"{len(x)}d", *map(_number, values))
        layout = self.number(tuple(x), row is not None)
        if layout == OWN:
            row = json.dumps([[encode_label(name), _plain(value)] for name, value in x.items()]).encode()
        elif row is None:
            row = _json(list(values))
        return layout, padded(row, b" ")

    def pack(self, features: Features, n: int) -> Packed:
        """Pack n rows of features."""
        if isinstance(features, SparseRows):
            lengths, (places, words) = np.diff(features.indptr), (features.indices.view(np.float64), features.values)
            starts = np.column_stack([features.indptr[:-1], features.indptr[:-1] + len(words)])
            both = gather(np.concatenate([places, words]), starts.reshape(-1), np.repeat(lengths, 2))
            return Packed(np.full(len(lengths), SPARSE), both, 2 * lengths)
        if isinstance(features, dict):
            plain = all(column.dtype.kind == "f" for column in features.values())
            if plain and (layout := self.number(tuple(features), True)) != OWN:
                X = np.column_stack([np.empty((n, 0)), *features.values()])
                return Packed(np.full(n, layout), X.reshape(-1), np.full(n, X.shape[1]))
            features = rows_of(features, n, missing=True)
        layouts, rows = zip(*map(self.pack_one, features), strict=True) if features else ((), ())
        words = np.frombuffer(b"".join(rows), np.float64)
        return Packed(np.array(layouts, np.int64), words, np.array([len(row) // 8 for row in rows], np.int64))

    def unpack(self, layouts: Ints, words: Floats, lengths: Ints) -> Features:
        """Restore rows, as a table if all have equal names and only numbers."""
        kinds = set(layouts.tolist())
        if kinds == {SPARSE}:
            return _unpack_sparse(words, lengths)
        if len(kinds) == 1 and (layout := kinds.pop()) >= 0 and self.names[layout][1]:
            X = words.reshape(len(layouts), -1)
            return {name: X[:, j] for j, name in enumerate(self.names[layout][0])}
        rows = np.split(words, np.cumsum(lengths)[:-1])
        return [self.unpack_one(layout, row) for layout, row in zip(layouts.tolist(), rows, strict=True)]

    def unpack_one(self, layout: int, words: Any) -> dict[Any, Any]:
        """Restore one row, given its words as an array or as bytes."""
        try:
            return self._row(layout, np.frombuffer(words, np.float64))
        except CORRUPT_ERRORS as error:
            raise ArchiveError(f"a pending event is damaged: {error}") from error

    def _row(self, layout: int, words: Floats) -> dict[Any, Any]:
        if layout == SPARSE:
            n = len(words) // 2
            return dict(zip(words[:n].view(np.int64).tolist(), words[n:].tolist(), strict=True))
        if layout == OWN:
            return {_name(name): value for name, value in json.loads(words.tobytes())}
        names, plain = self.names[layout]
        values = words.tolist() if plain else _values(words.tobytes())
        return {name: value for name, value in zip(names, values, strict=True) if not is_absent(value)}

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


def stacked(features: Features, n: int, more: Features, m: int) -> Features:
    """Concatenate n rows and m rows, which may be of other kinds."""
    if not (n and m):
        return features if n else more
    if isinstance(features, SparseRows) and isinstance(more, SparseRows):
        return SparseRows(
            np.concatenate([features.indptr[:-1], features.indptr[-1] + more.indptr]),
            np.concatenate([features.indices, more.indices]),
            np.concatenate([features.values, more.values]),
        )
    if isinstance(features, dict) and isinstance(more, dict) and tuple(features) == tuple(more):
        return {name: np.concatenate([column, more[name]]) for name, column in features.items()}
    return rows_of(features, n, missing=True) + rows_of(more, m, missing=True)


def in_order(features: Features, order: Ints) -> Features:
    """Return the rows in the given order."""
    return features if (order == np.arange(len(order))).all() else picked(features, order)


def _unpack_sparse(words: Floats, lengths: Ints) -> SparseRows:
    n, starts = lengths // 2, np.cumsum(lengths) - lengths
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(n)])
    return SparseRows(indptr, gather(words.view(np.int64), starts, n), gather(words, starts + n, n))


def _json(values: list[Any]) -> bytes:
    try:
        return orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:  # strings that are not valid UTF-8, or numbers beyond 64 bits
        return json.dumps([*map(_plain, values)]).encode()


def _plain(value: Any) -> str | float | None:
    return value if isinstance(value, str | None) else _number(value)


def _number(value: Any) -> float:
    return math.nan if value is None or is_nan(value) else float(value)
