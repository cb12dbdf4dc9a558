"""Batch columns stored as arrays and converted to Python lists on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class StringColumn(Sequence[str]):
    """Strings stored as one UTF-8 buffer and offsets.

    Parameters
    ----------
    data
        UTF-8 bytes, uint8.
    bounds
        Start of each text, and the end of the last one, int64, shape (n + 1,).

    Examples
    --------
    >>> texts = StringColumn.of(["a", "", "bcd"])
    >>> texts[2], texts[1:].tolist(), texts.take(np.array([2, 0])).tolist(), texts.lengths
    ('bcd', ['', 'bcd'], ['bcd', 'a'], array([1, 0, 3]))
    """

    def __init__(self, data: NDArray[np.uint8], bounds: Ints) -> None:
        self._data, self._bounds = data, bounds

    @classmethod
    def of(cls, texts: Sequence[str]) -> StringColumn:
        """Convert any texts. Lone surrogates are kept."""
        if isinstance(texts, cls):
            return texts
        whole = "".join(texts).encode("utf-8", "surrogatepass")
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        if lengths.sum() != len(whole):
            lengths = np.array([len(text.encode("utf-8", "surrogatepass")) for text in texts], np.int64)
        return cls(np.frombuffer(whole, np.uint8), np.concatenate([[0], np.cumsum(lengths)]))

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            start, end, _ = i.indices(len(self))
            return StringColumn(self._data, self._bounds[start : max(start, end) + 1])
        return self._list[i]

    def __iter__(self) -> Iterator[str]:
        return iter(self._list)

    def __eq__(self, other: object) -> bool:
        return self._list == list(other) if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return repr(self._list)

    __hash__ = None  # type: ignore[assignment] # as of lists

    @property
    def data(self) -> NDArray[np.uint8]:
        """The bytes of these texts."""
        return self._data[self._bounds[0] : self._bounds[-1]]

    @cached_property
    def lengths(self) -> Ints:
        """Length of each text in bytes."""
        return self._bounds[1:] - self._bounds[:-1]

    def take(self, rows: Ints) -> StringColumn:
        """Select texts by index."""
        bounds, places = gathered(self._bounds, rows)
        return StringColumn(self._data[places], bounds)

    def tolist(self) -> list[str]:
        """Return a list of str."""
        return self._list

    @cached_property
    def _list(self) -> list[str]:
        whole, bounds = self.data.tobytes(), (self._bounds - self._bounds[0]).tolist()
        if whole.isascii():
            text = whole.decode()
            return [text[start:end] for start, end in pairwise(bounds)]
        return [whole[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(bounds)]


class LazyStrings(Sequence[str]):
    """Byte strings that are decoded on access.

    Parameters
    ----------
    values
        Byte strings.
    decode
        Function that decodes a byte string.
    """

    def __init__(self, values: Sequence[bytes], decode: Callable[[bytes], str]) -> None:
        self._values, self._decode = values, decode

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, i: Any) -> Any:
        values = self._values[i]
        return LazyStrings(values, self._decode) if isinstance(i, slice) else self._decode(values)


class CategoricalColumn(Sequence[Any]):
    """Categorical column: codes into a sequence of values.

    Parameters
    ----------
    codes
        Index of each element in `values`.
    values
        Possible values.

    Examples
    --------
    >>> labels = CategoricalColumn(np.array([1, 0, 1]), ["up", None])
    >>> labels[1], labels.tolist(), labels[:2].tolist(), labels.take(np.array([2])).tolist()
    ('up', [None, 'up', None], [None, 'up'], [None])
    """

    def __init__(self, codes: Ints, values: Sequence[Any]) -> None:
        self.codes, self.values = codes, values

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return CategoricalColumn(self.codes[i], self.values)
        return self.values[int(self.codes[i])]

    def __iter__(self) -> Iterator[Any]:
        return map(self.values.__getitem__, self.codes.tolist())

    def __contains__(self, value: object) -> bool:
        codes = [code for code, other in enumerate(self.values) if other is value or other == value]
        return bool(codes) and bool(np.isin(self.codes, codes).any())

    def __repr__(self) -> str:
        return repr(self.tolist())

    @classmethod
    def of(cls, values: Sequence[Any]) -> CategoricalColumn:
        """Convert any values, without deduplication."""
        return values if isinstance(values, cls) else cls(np.arange(len(values)), values)

    @classmethod
    def by_value(cls, values: Sequence[Any]) -> CategoricalColumn:
        """Convert hashable values, with each distinct value stored once.

        >>> CategoricalColumn.by_value(["up", "down", "up"]).codes
        array([0, 1, 0])
        """
        if isinstance(values, cls):
            return values
        numbers = {value: code for code, value in enumerate(dict.fromkeys(values))}
        return cls(np.fromiter(map(numbers.__getitem__, values), np.int64, len(values)), list(numbers))

    def different(self) -> list[Any]:
        """Return the values that occur, in order of their first occurrence."""
        return [self.values[code] for code in dict.fromkeys(self.codes.tolist())]

    def take(self, rows: Any) -> CategoricalColumn:
        """Select elements by index or mask."""
        return CategoricalColumn(self.codes[rows], self.values)

    def tolist(self) -> list[Any]:
        """Return a list of the values."""
        return list(self)


def gathered(bounds: Ints, rows: Any) -> tuple[Ints, Ints]:
    """Return bounds of some rows of a jagged array, and indices of their elements.

    Examples
    --------
    >>> gathered(np.array([0, 2, 2, 5]), np.array([2, 0]))
    (array([0, 3, 5]), array([2, 3, 4, 0, 1]))
    """
    lengths = np.diff(bounds)[rows]
    found = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return found, np.repeat(bounds[:-1][rows] - found[:-1], lengths) + np.arange(found[-1])


def numbers_of(values: Sequence[Any], numbers: Mapping[Any, int]) -> Ints:
    """Return the entry of a dict for each value, or -1 if there is none.

    Examples
    --------
    >>> numbers_of(["b", "c", "a"], {"a": 0, "b": 1})
    array([ 1, -1,  0])
    """
    if isinstance(values, CategoricalColumn):
        return numbers_of(list(values.values), numbers)[values.codes]
    if not numbers:
        return np.full(len(values), -1)
    return np.fromiter(map(numbers.get, values, repeat(-1)), np.int64, len(values))


# Arrays of pyarrow -----------------------------------------------------------------------------------------------


def floats_of(array: Any) -> NDArray[np.float64]:
    """Convert a pyarrow array to numpy, with NaN for null.

    pyarrow's own `to_numpy` imports pandas if it is installed.
    """
    validity, data = array.buffers()
    values = np.frombuffer(data, np.float64, len(array), 8 * array.offset)
    if array.null_count:
        is_valid = np.unpackbits(np.frombuffer(validity, np.uint8), count=array.offset + len(array), bitorder="little")
        values = np.where(is_valid[array.offset :], values, np.nan)
    return values


def codes_of(array: Any) -> CategoricalColumn:
    """Convert a dictionary array; only its distinct texts become Python strings."""
    indices = np.frombuffer(array.indices.buffers()[1], np.int32, len(array), 4 * array.offset)
    return CategoricalColumn(indices.astype(np.int64), array.dictionary.to_pylist())


def texts_of(array: Any) -> StringColumn:
    """Convert a string array without creating Python strings."""
    _, bounds, data = array.buffers()
    starts = np.frombuffer(bounds, np.int32, len(array) + 1, 4 * array.offset).astype(np.int64)
    return StringColumn(np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8), starts)
