"""The scaling of raw rows, as plain arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.models.archive import check_names, decode_label, encode_label

# Scaled values beyond this decrease with the squared distance, as in `features.scaler`.
FARTHER = 100.0
_SCALER_ARRAYS = ("is_indicator", "shift", "scale", "count")
_WINDOW_ARRAYS = ("windows", "window_lengths")
_FITTED_ARRAYS = ("mean", "spread")
_TYPES = {"is_indicator": np.dtype(bool), "window_lengths": np.dtype(np.int64)}


def cut(scaled: NDArray[np.float64], limit: float) -> NDArray[np.float64]:
    """Clip scaled values to [-limit, limit], and shrink far outliers.

    Beyond FARTHER, the result decreases with the squared distance.

    Parameters
    ----------
    scaled
        The values, NaN where missing.
    limit
        The largest magnitude; inf changes nothing.

    Examples
    --------
    >>> cut(np.array([3.0, -30.0, 1e6]), limit=10.0)
    array([  3.e+00, -1.e+01,   1.e-07])
    """
    near = np.clip(scaled, -limit, limit)
    size = np.abs(scaled)
    if limit < FARTHER and np.fmax.reduce(size, axis=None, initial=0.0) > FARTHER:
        near *= np.minimum(FARTHER / np.fmax(size, FARTHER), 1.0) ** 2
    return near


@dataclass(slots=True)
class Scaler:
    """Scaling of raw values to (x - shift) * scale, clipped at `limit`.

    Missing values become 0.

    Parameters
    ----------
    names
        Name of each column. If `is_indicator` is true, a (name, string) pair, or (name, None) for missing values.
    is_indicator
        Whether a column is 1 for rows with its string, or without a value under its name, shape (d,).
    shift, scale
        Shape (d,).
    count
        Number of values in these statistics, shape (d,).
    limit
        The largest scaled magnitude; inf for none.
    windows
        For scaling by rank, the sorted values of each column; a column without values is scaled as above. A rank r,
        from 0 to 1, becomes (r - 1/2) * sqrt(12).
    mean, spread
        Statistics of the rows to which a model of unscaled values was fitted, shape (d,).
    """

    names: list[Any]
    is_indicator: NDArray[np.bool_]
    shift: NDArray[np.float64]
    scale: NDArray[np.float64]
    count: NDArray[np.float64]
    limit: float = math.inf
    windows: list[NDArray[np.float64]] | None = None
    mean: NDArray[np.float64] | None = None
    spread: NDArray[np.float64] | None = None

    @classmethod
    def identity(cls, names: Sequence[Any]) -> Scaler:
        """Return a scaler that leaves numbers unchanged.

        Parameters
        ----------
        names
            Names of the columns.
        """
        d = len(names)
        return cls(list(names), np.zeros(d, bool), np.zeros(d), np.ones(d), np.zeros(d))

    @property
    def is_identity(self) -> bool:
        """Whether numbers stay unchanged."""
        same = bool((self.shift == 0.0).all() and (self.scale == 1.0).all())
        return same and self.windows is None and math.isinf(self.limit)

    @property
    def gaps(self) -> dict[int, int]:
        """Columns that indicate missing values, with the columns of these values."""
        columns = {name: j for j, name in enumerate(self.names) if not self.is_indicator[j]}
        own = [j for j in np.flatnonzero(self.is_indicator).tolist() if self.names[j][1] is None]
        return {j: columns[self.names[j][0]] for j in own}

    def __call__(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scale raw rows, NaN if missing, given without columns of missing values."""
        for j, column in self.gaps.items():
            X = np.insert(X, j, np.where(np.isnan(X[:, column]), 1.0, math.nan), axis=1)
        scaled = cut((X - self.shift) * self.scale, self.limit)
        for j, window in enumerate(self.windows or []):
            if len(window):
                both = np.searchsorted(window, X[:, j], "left") + np.searchsorted(window, X[:, j], "right")
                scaled[:, j] = (both / (2.0 * len(window)) - 0.5) * math.sqrt(12.0)
        return np.where(np.isnan(X), 0.0, scaled)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the header and the arrays of an archive."""
        arrays = {name: getattr(self, name) for name in _SCALER_ARRAYS}
        if self.windows is not None:
            arrays["windows"] = np.concatenate([*self.windows, np.empty(0)])
            arrays["window_lengths"] = np.array([len(window) for window in self.windows], np.int64)
        if self.mean is not None and self.spread is not None:
            arrays |= {name: getattr(self, name) for name in _FITTED_ARRAYS}
        return {"names": [encode_label(name) for name in self.names], "limit": self.limit.hex()}, arrays

    @classmethod
    def from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], own: tuple[str, ...]) -> Scaler:
        """Restore a scaler from an archive, which may contain other arrays.

        Parameters
        ----------
        header, arrays
            The result of `state`, and further entries.
        own
            Names of the other arrays.

        Raises
        ------
        ValueError
            For missing, surplus or invalid arrays.
        """
        expected = {*own, *_SCALER_ARRAYS}
        for optional in (_WINDOW_ARRAYS, _FITTED_ARRAYS):
            expected |= {*optional} if optional[0] in arrays else set()
        check_names(arrays, expected)
        for name, array in arrays.items():
            if array.dtype != _TYPES.get(name, np.float64):
                raise ValueError(f"array {name!r} has type {array.dtype}")
        names = [decode_label(name) for name in header["names"]]
        limit = float.fromhex(header["limit"])
        kept = (*_SCALER_ARRAYS, *(name for name in _FITTED_ARRAYS if name in arrays))
        for name in kept:
            if arrays[name].shape != (len(names),) or not np.isfinite(arrays[name]).all():
                raise ValueError(f"array {name!r} does not hold a finite number for each of {len(names)} columns")
        if not limit > 0.0:
            raise ValueError(f"the limit must be positive, got {limit}")
        if "spread" in arrays and (arrays["spread"] < 0.0).any():
            raise ValueError("a column's spread is negative")
        return cls(names, **{name: arrays[name] for name in kept}, limit=limit, windows=_windows(arrays))


def _windows(arrays: Mapping[str, NDArray[Any]]) -> list[NDArray[np.float64]] | None:
    if "windows" not in arrays:
        return None
    values, lengths = arrays["windows"], arrays["window_lengths"]
    shapes = values.ndim == 1 and lengths.shape == arrays["shift"].shape
    if not shapes or (lengths < 0).any() or sum(lengths.tolist()) != len(values):
        raise ValueError("the lengths of windows do not fit their values")
    windows = np.split(values, np.cumsum(lengths)[:-1]) if len(lengths) else []
    if not all((np.diff(window) >= 0.0).all() and np.isfinite(window).all() for window in windows):
        raise ValueError("windows are not sorted")
    return windows
