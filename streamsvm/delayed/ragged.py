"""Rows of different lengths in one growing array."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.features.rows import Ints

_FIRST = 64


class Growing:
    """Array that grows at its end, doubling its capacity when full.

    Examples
    --------
    >>> array = Growing(np.int64)
    >>> array.add(np.array([1, 2])), array.add(np.array([3])), array.values.tolist()
    (None, None, [1, 2, 3])
    """

    def __init__(self, dtype: Any, values: NDArray[Any] | None = None) -> None:
        self._held = np.zeros(0, dtype) if values is None else values
        self.itemsize = self._held.itemsize
        self._size = len(self._held)
        self._is_on_disk = False

    def __len__(self) -> int:
        return self._size

    @property
    def values(self) -> NDArray[Any]:
        """View of all values."""
        return self._held[: self._size]

    @property
    def n_bytes(self) -> int:
        """Memory in use; 0 on disk."""
        return 0 if self._is_on_disk else int(self._size * self._held.itemsize)

    def spill(self, folder: Path) -> None:
        """Move the values to a memory-mapped file; `add` is not allowed afterwards.

        The file has no name, and is removed with the array.
        """
        if self._is_on_disk or not self._size:
            return
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(self.values.data)
            file.flush()
            self._held = np.memmap(file, self._held.dtype, "r", shape=(self._size,)).view(np.ndarray)
        self._is_on_disk = True

    def append(self, row: bytes) -> None:
        """Append values given as bytes."""
        values = np.frombuffer(row, self._held.dtype)
        start, end = self._size, self._size + len(values)
        if end > len(self._held):
            self.add(values)
        else:
            self._held[start:end] = values
            self._size = end

    def add(self, values: NDArray[Any]) -> None:
        """Append values."""
        end = self._size + len(values)
        if end > len(self._held):
            grown = np.empty(max(end, 2 * len(self._held), _FIRST), self._held.dtype)
            grown[: self._size] = self.values
            self._held = grown
        self._held[self._size : end] = values
        self._size = end


class Ragged:
    """Rows of different lengths. While all lengths are equal, only that length is stored.

    Examples
    --------
    >>> rows = Ragged(np.int64)
    >>> rows.add(np.arange(4), np.array([2, 2]))
    >>> rows.add(np.arange(3), np.array([1, 2]))
    >>> rows.take(np.array([3, 0]))
    (array([1, 2, 0, 1]), array([2, 2]))
    """

    def __init__(self, dtype: Any) -> None:
        self._data = Growing(dtype)
        self._n = 0
        self._width = 0
        self._ends: Growing | None = None

    def __len__(self) -> int:
        return self._n

    @property
    def n_bytes(self) -> int:
        """Memory in use."""
        return self._data.n_bytes + (0 if self._ends is None else self._ends.n_bytes)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of each row."""
        return np.full(self._n, self._width) if self._ends is None else np.diff(self._ends.values, prepend=0)

    @property
    def n_values(self) -> int:
        """Total number of values."""
        return len(self._data)

    def add(self, data: NDArray[Any], lengths: Ints) -> None:
        """Append rows, concatenated in `data`."""
        n = len(lengths)
        if not n:
            return
        if self._n == 0:
            self._width = int(lengths[0])
        if self._ends is None and not (lengths == self._width).all():
            self._ends = Growing(np.int64, np.arange(1, self._n + 1, dtype=np.int64) * self._width)
        if self._ends is not None:
            self._ends.add(len(self._data) + np.cumsum(lengths))
        self._data.add(data)
        self._n += n

    def append(self, row: bytes) -> None:
        """Append one row given as bytes."""
        n = len(row) // self._data.itemsize
        if not self._n or (self._ends is None and n != self._width):
            self.add(np.frombuffer(row, self.dtype), np.array([n]))
            return
        if n:
            self._data.append(row)
        if self._ends is not None:
            self._ends.append(len(self._data).to_bytes(8, sys.byteorder))
        self._n += 1

    def row(self, i: int) -> NDArray[Any]:
        """Return a view of one row."""
        if self._ends is None:
            return self._data.values[i * self._width : (i + 1) * self._width]
        ends = self._ends.values
        return self._data.values[ends[i - 1] if i else 0 : ends[i]]

    def spill(self, folder: Path) -> None:
        """Move the rows to a file; `add` is not allowed afterwards."""
        self._data.spill(folder)
        if self._ends is not None:
            self._ends.spill(folder)

    @property
    def dtype(self) -> Any:
        """The type of the values."""
        return self._data.values.dtype

    def spans(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the start and length of rows."""
        if self._ends is None:
            return rows * self._width, np.full(len(rows), self._width)
        ends = self._ends.values
        starts = np.where(rows > 0, ends[rows - 1], 0)
        return starts, ends[rows] - starts

    def take(self, rows: Ints) -> tuple[NDArray[Any], Ints]:
        """Return copies of rows, concatenated, and their lengths."""
        starts, lengths = self.spans(rows)
        if self._ends is None:
            return self._data.values.reshape(self._n, self._width)[rows].reshape(-1), lengths
        offsets = np.cumsum(lengths) - lengths
        return self._data.values[np.repeat(starts - offsets, lengths) + np.arange(int(lengths.sum()))], lengths

    def empty(self, rows: NDArray[np.bool_]) -> Ragged:
        """Return a copy in which the marked rows are empty."""
        data, lengths = self.take(np.flatnonzero(~rows))
        all_lengths = np.zeros(self._n, np.int64)
        all_lengths[~rows] = lengths
        other = Ragged(self.dtype)
        other.add(data, all_lengths)
        return other

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays."""
        n = np.array([self._n, self._width])
        return {"data": self._data.values, "n": n} | ({} if self._ends is None else {"ends": self._ends.values})

    @classmethod
    def from_state(cls, dtype: Any, arrays: dict[str, NDArray[Any]]) -> Ragged:
        """Restore rows from their `state`.

        Raises
        ------
        ValueError
            If the arrays are invalid.
        """
        self, data, ends = cls(dtype), arrays["data"], arrays.get("ends")
        self._n, self._width = (int(number) for number in arrays["n"])
        size = self._n * self._width if ends is None else int(ends[-1]) if len(ends) else 0
        if data.dtype != np.dtype(dtype) or data.ndim != 1 or self._n < 0 or self._width < 0 or len(data) != size:
            raise ValueError(f"{self._n} rows of width {self._width} in an array of shape {data.shape}")
        if ends is not None and (
            len(ends) != self._n or ends.dtype != np.int64 or (np.diff(ends, prepend=0) < 0).any()
        ):
            raise ValueError(f"{self._n} rows that end at {len(ends)} places")
        self._data, self._ends = Growing(dtype, data), None if ends is None else Growing(np.int64, ends)
        return self
