"""Streams for feature drift detectors, with and without changes.

A change affects one column or a relation of columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

WIDTH = 10
_WORDS = np.array([f"word {i}" for i in range(400)], object)
_KNOWN = 200

Columns = dict[str, NDArray[Any]]


# Streams without a change ---------------------------------------------------------------------------------------------


def normal(rng: np.random.Generator, n: int) -> Columns:
    """Return normal columns; the first two have a correlation of 0.6."""
    X = rng.normal(size=(WIDTH, n))
    X[1] = 0.6 * X[0] + 0.8 * X[1]
    return {f"x{k}": column for k, column in enumerate(X)}


def heavy(rng: np.random.Generator, n: int) -> Columns:
    """Return columns with Student's t distribution of two degrees of freedom."""
    return {f"x{k}": column for k, column in enumerate(rng.standard_t(2.0, size=(WIDTH, n)))}


def counts(rng: np.random.Generator, n: int) -> Columns:
    """Return Poisson columns of means 0.05 to 25, with 2 % of the values missing."""
    columns = {f"x{k}": rng.poisson(0.05 * 2.0**k, size=n).astype(float) for k in range(WIDTH)}
    for column in columns.values():
        column[rng.random(n) < 0.02] = np.nan
    return columns


def categories(rng: np.random.Generator, n: int, width: int = 4) -> Columns:
    """Return columns of 200 categories with Zipf's distribution."""
    shares = 1.0 / np.arange(1, _KNOWN + 1)
    cumulative = np.cumsum(shares) / shares.sum()
    return {f"x{k}": _WORDS[cumulative.searchsorted(rng.random(n)).clip(0, _KNOWN - 1)] for k in range(width)}


def mixed(rng: np.random.Generator, n: int) -> Columns:
    """Return a column of categories and normal ones."""
    return normal(rng, n) | categories(rng, n, 1)


class Dependent:
    """Normal autoregressive columns, with coefficients from 0.1 to 0.99."""

    def __init__(self) -> None:
        self._last: Any = None

    def __call__(self, rng: np.random.Generator, n: int) -> Columns:
        """Return the next n events."""
        from scipy.signal import lfilter

        coefficients = np.linspace(0.1, 0.99, WIDTH)
        last = rng.normal(size=WIDTH) if self._last is None else self._last
        noise = rng.normal(size=(WIDTH, n)) * np.sqrt(1.0 - coefficients**2)[:, None]
        X = np.stack(
            [lfilter([1.0], [1.0, -c], own, zi=[c * x])[0] for c, own, x in zip(coefficients, noise, last, strict=True)]
        )
        self._last = X[:, -1]
        return {f"x{k}": column for k, column in enumerate(X)}


STREAMS: dict[str, Callable[[], Callable[[np.random.Generator, int], Columns]]] = {
    "normal": lambda: normal,
    "heavy tails": lambda: heavy,
    "counts, 2 % missing": lambda: counts,
    "categories": lambda: categories,
    "autoregressive": Dependent,
}


# Changes --------------------------------------------------------------------------------------------------------------


def _shift(X: Columns, size: float) -> None:
    X["x0"] = X["x0"] + size


def _scale(X: Columns, factor: float) -> None:
    X["x0"] = X["x0"] * factor


def _two_modes(X: Columns, distance: float) -> None:
    """Move half of the values up and half of them down; mean and variance stay."""
    sign = np.where(np.arange(len(X["x0"])) % 2, distance, -distance)
    X["x0"] = (X["x0"] + sign) / np.sqrt(1.0 + distance**2)


def _stuck(X: Columns, _: float) -> None:
    X["x0"] = np.full(len(X["x0"]), X["x0"][0])


def _some(X: Columns, share: float) -> NDArray[np.bool_]:
    """Return a mask of a share of the events."""
    mask: NDArray[np.bool_] = np.random.default_rng(3).random(len(X["x0"])) < share
    return mask


def _missing(X: Columns, share: float) -> None:
    X["x0"] = np.where(_some(X, share), np.nan, X["x0"])


def _most_frequent(X: Columns, share: float) -> None:
    """Increase the share of the most frequent category from 0.17 to `share`."""
    before = np.mean(X["x0"] == _WORDS[0])
    X["x0"] = np.where(_some(X, (share - before) / (1.0 - before)), _WORDS[0], X["x0"])


def _rare(X: Columns, share: float) -> None:
    """Give a share to the 100 least frequent categories, which have 0.12."""
    words = _WORDS[_KNOWN // 2 + np.arange(len(X["x0"])) % (_KNOWN // 2)]
    X["x0"] = np.where(_some(X, (share - 0.12) / 0.88), words, X["x0"])


def _unseen(X: Columns, share: float) -> None:
    """Replace a share of the values by 200 categories that were not there before."""
    X["x0"] = np.where(_some(X, share), _WORDS[_KNOWN + np.arange(len(X["x0"])) % _KNOWN], X["x0"])


CHANGES: dict[str, tuple[Callable[[Columns, float], None], tuple[float, ...]]] = {
    "mean, in deviations": (_shift, (0.1, 0.25, 0.5, 1.0, 3.0)),
    "deviation, ratio": (_scale, (1.1, 1.25, 1.5, 2.0)),
    "two modes, distance": (_two_modes, (1.0, 2.0)),
    "category share 0.17 to": (_most_frequent, (0.2, 0.25, 0.4)),
    "rare categories 0.12 to": (_rare, (0.2, 0.4)),
    "unseen categories, share": (_unseen, (0.001, 0.01, 0.1)),
    "stuck": (_stuck, (0.0,)),
    "dead, always": (_scale, (0.0,)),
    "unit, factor": (_scale, (0.001, 1000.0)),
    "missing, share": (_missing, (0.02, 0.1, 1.0)),
}


# Changes of relations, in which the distribution of each column stays -------------------------------------------------


def _correlation(X: Columns, correlation: float) -> None:
    own = (X["x1"] - 0.6 * X["x0"]) / 0.8
    X["x1"] = correlation * X["x0"] + np.sqrt(1.0 - correlation**2) * own


def _correlations(X: Columns, correlation: float) -> None:
    """Raise all correlations by a common part of all columns."""
    common = np.sqrt(correlation) * np.random.default_rng(3).normal(size=len(X["x0"]))
    for name, column in X.items():
        X[name] = np.sqrt(1.0 - correlation) * column + common


def _three(X: Columns, share: float) -> None:
    """Give a column the sign of the product of two others."""
    X["x4"] = np.where(_some(X, share), np.abs(X["x4"]) * np.sign(X["x2"] * X["x3"]), X["x4"])


def _square(X: Columns, share: float) -> None:
    """Make a column a function of the square of another one."""
    X["x3"] = np.where(_some(X, share), special.ndtri(2.0 * special.ndtr(np.abs(X["x2"])) - 1.0), X["x3"])


def _spread(X: Columns, share: float) -> None:
    """Give a column the absolute value of another one."""
    X["x3"] = np.where(_some(X, share), np.abs(X["x2"]) * np.sign(X["x3"]), X["x3"])


def _rotation(X: Columns, _: float) -> None:
    """Replace two columns by the ranks of Laplace columns rotated by 45 degrees."""
    a, b = (stats.laplace.ppf(special.ndtr(X[name])) for name in ("x2", "x3"))
    for name, turned in (("x2", a + b), ("x3", a - b)):
        tail = 0.5 * (1.0 + np.abs(turned) / 2.0) * np.exp(-np.abs(turned))
        X[name] = -np.sign(turned) * special.ndtri(tail)


def _duplicates(X: Columns, share: float) -> None:
    """Replace events by copies of the first 200, in random order."""
    some, copied = _some(X, share), np.random.default_rng(5).integers(200, size=len(X["x0"]))
    for name, column in X.items():
        X[name] = np.where(some, column[copied], column)


RELATIONS: dict[str, tuple[Callable[[Columns, float], None], tuple[float, ...]]] = {
    "correlation 0.6 to": (_correlation, (0.3, 0.0, -0.6)),
    "all correlations, raised by": (_correlations, (0.05, 0.1)),
    "relation of three columns, share": (_three, (0.5, 1.0)),
    "square of another column, share": (_square, (0.25, 0.5)),
    "common spread, share": (_spread, (0.25, 0.5)),
    "rotation of two columns, degrees": (_rotation, (45.0,)),
    "copies of 200 events, share": (_duplicates, (0.5, 1.0)),
}


def changed(change: str, size: float, rng: np.random.Generator, before: int, after: int) -> Columns:
    """Return a stream in which the first column, or a relation of columns, changes."""
    draw = mixed if "categor" in change else normal
    first, second = draw(rng, before), draw(rng, after)
    (CHANGES | RELATIONS)[change][0](second, size)
    return {name: np.concatenate([first[name], second[name]]) for name in first}


def numbers(column: NDArray[Any]) -> NDArray[np.float64]:
    """Return a column as numbers; categories become ranks with a deviation of 1."""
    if column.dtype != object:
        return column.astype(np.float64)
    return np.array([float(word[5:]) for word in column.tolist()]) / 47.0
