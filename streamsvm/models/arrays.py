"""What a learner knows, as plain arrays: linear models, polytopes, kernel expansions and trees."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from streamsvm.models.archive import (
    DAMAGED,
    ArchiveError,
    check_names,
    check_replaced,
    decode_label,
    decode_labels,
    encode_label,
    read_archive,
    write_archive,
)

# The most kernel values held at a time.
_LARGEST_BLOCK = 1 << 22
# Scaled values beyond this fall with the square of the distance, as those of the online learners do.
FARTHER = 100.0
_SCALER_ARRAYS = ("is_indicator", "shift", "scale", "count")
_WINDOW_ARRAYS = ("windows", "window_lengths")
_FITTED_ARRAYS = ("mean", "spread")
_TYPES = {"is_indicator": np.dtype(bool), "window_lengths": np.dtype(np.int64)}
_MOST_DEGREE = 1 << 31


def cut(scaled: NDArray[np.float64], limit: float) -> NDArray[np.float64]:
    """Cut scaled values to [-limit, limit]; outliers fall with the square of the distance, as if they were missing.

    Parameters
    ----------
    scaled
        The values, NaN where missing.
    limit
        The largest magnitude; inf for none, where outliers stay as they are.

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
    """How raw values became the values a model works on: (x - shift) * scale, cut as by `cut`, missing as 0.

    Parameters
    ----------
    names
        What stands in each column: a name, or a (name, string) pair where `is_indicator`.
    is_indicator
        Whether a column is 1 where a string was met, shape (d,).
    shift, scale
        Shape (d,).
    count
        How many values these rest on, shape (d,).
    limit
        The largest scaled magnitude; inf for none.
    windows
        Where values are scaled by rank instead, the sorted values each column ranks among; those with none are scaled
        as above. A rank r, from 0 to 1, becomes (r - 1/2) * sqrt(12).
    mean, spread
        Where numbers stay as they are, what is known of the rows a model was fitted on, shape (d,).
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
        """One that leaves numbers as they are.

        Parameters
        ----------
        names
            Of the columns.
        """
        d = len(names)
        return cls(list(names), np.zeros(d, bool), np.zeros(d), np.ones(d), np.zeros(d))

    @property
    def is_identity(self) -> bool:
        """Whether it leaves numbers as they are."""
        same = bool((self.shift == 0.0).all() and (self.scale == 1.0).all())
        return same and self.windows is None and math.isinf(self.limit)

    def __call__(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scale raw rows, shape (n, d), NaN where missing."""
        scaled = cut((X - self.shift) * self.scale, self.limit)
        for j, window in enumerate(self.windows or []):
            if len(window):
                both = np.searchsorted(window, X[:, j], "left") + np.searchsorted(window, X[:, j], "right")
                scaled[:, j] = (both / (2.0 * len(window)) - 0.5) * math.sqrt(12.0)
        return np.where(np.isnan(X), 0.0, scaled)


class _Model:
    """A model that has a score for each class; the one with the largest wins."""

    __slots__ = ()
    classes: list[Any]

    @abstractmethod
    def decision_function(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """The score of every class."""

    def predict(self, X: NDArray[np.float64]) -> list[Any]:
        """The label of every raw row.

        Parameters
        ----------
        X
            Raw rows, float64, shape (n, d), NaN where missing.
        """
        return [self.classes[c] for c in self.decision_function(X).argmax(axis=1)]


class _Saved(_Model):
    """One for scaled rows that is saved: its arrays, by name, and settings beside them."""

    __slots__ = ()
    _arrays: ClassVar[tuple[str, ...]]
    scaler: Scaler

    def _settings(self) -> dict[str, Any]:
        """What the header of its archive has beside labels and columns."""
        return {}

    @classmethod
    def _checked(cls, header: dict[str, Any]) -> dict[str, Any]:
        """Settings from a header."""
        return {}

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write it to a file, whole or not at all.

        Parameters
        ----------
        path
            The file, which is replaced where it is one of this package.
        overwrite
            Whether a file of something else is replaced, too.

        Raises
        ------
        FileExistsError
            Where there is a file of something else.
        """
        if not overwrite:
            check_replaced(path)
        scaler = self.scaler
        header = {
            "class": type(self).__name__,
            "classes": [encode_label(label) for label in self.classes],
            "names": [encode_label(name) for name in scaler.names],
            "limit": scaler.limit.hex(),
            **self._settings(),
        }
        arrays = {name: getattr(self, name) for name in self._arrays}
        arrays |= {name: getattr(scaler, name) for name in _SCALER_ARRAYS}
        if scaler.windows is not None:
            arrays["windows"] = np.concatenate([*scaler.windows, np.empty(0)])
            arrays["window_lengths"] = np.array([len(window) for window in scaler.windows], np.int64)
        if scaler.mean is not None and scaler.spread is not None:
            arrays |= {name: getattr(scaler, name) for name in _FITTED_ARRAYS}
        write_archive(path, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read it from a file.

        Parameters
        ----------
        path
            The file.

        Raises
        ------
        ArchiveError
            Where the file is damaged, foreign, or holds something else.
        FileNotFoundError
            Where there is none.
        """
        header, arrays = read_archive(path)
        if header.get("class") != cls.__name__:
            raise ArchiveError(f"{path} holds {header.get('class')!r}, not a {cls.__name__}")
        try:
            _check_arrays(arrays, cls._arrays)
            own: dict[str, Any] = {name: arrays[name] for name in cls._arrays} | cls._checked(header)
            return cls(classes=decode_labels(header["classes"]), scaler=_scaler(header, arrays), **own)  # type: ignore[call-arg]
        except DAMAGED as error:
            raise ArchiveError(f"{path} is not a whole {cls.__name__}: {error!r}") from error


@dataclass(slots=True)
class Polytopes(_Model):
    """One polytope a class: f_c(x) = max_k faces[c, k] . x + biases[c, k], and the class with the largest f wins.

    Parameters
    ----------
    classes
        The labels, in order of first arrival.
    faces
        Shape (n_classes, n_faces, d), for scaled rows.
    biases
        Shape (n_classes, n_faces).
    scaler
        From raw rows to scaled ones.
    inverse_temperature
        Probabilities are the softmax of so many f_c,
    noise
        but for this share of labels, which are as if drawn at random.
    """

    classes: list[Any]
    faces: NDArray[np.float64]
    biases: NDArray[np.float64]
    scaler: Scaler
    inverse_temperature: float = 1.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        c, k, d = self.faces.shape
        if len(self.classes) != c or self.biases.shape != (c, k) or len(self.scaler.names) != d:
            raise ValueError(
                f"faces of shape {self.faces.shape} need {c} classes, biases of shape {(c, k)} and {d} columns; got "
                f"{len(self.classes)}, {self.biases.shape} and {len(self.scaler.names)}"
            )
        if not (np.isfinite(self.faces).all() and np.isfinite(self.biases).all()):
            raise ValueError("faces and biases must be finite")
        if not 0.0 < self.inverse_temperature < np.inf:
            raise ValueError(f"`inverse_temperature` must be a positive number, got {self.inverse_temperature}")
        if not 0.0 <= self.noise < 1.0:
            raise ValueError(f"`noise` must be a share below 1, got {self.noise}")

    def scaled_by(self, scaler: Scaler) -> Polytopes:
        """The same function of raw rows in which no value is missing or cut, by another scaling, not ranks.

        Parameters
        ----------
        scaler
            The other scaling, of the same columns.
        """
        own = self.scaler
        ratio = np.divide(own.scale, scaler.scale, out=np.zeros_like(scaler.scale), where=scaler.scale > 0.0)
        biases = self.biases + self.faces @ ((scaler.shift - own.shift) * own.scale)
        return replace(self, faces=self.faces * ratio, biases=biases, scaler=scaler)

    def decision_function(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """f of every class, shape (n, n_classes), for raw rows of shape (n, d), NaN where missing.

        Parameters
        ----------
        X
            Raw rows, float64, shape (n, d), NaN where missing.
        """
        scores = np.einsum("nd,ckd->nck", self.scaler(X), self.faces) + self.biases
        return np.asarray(scores.max(axis=2))


@dataclass(slots=True)
class KernelExpansion(_Saved):
    """f_c(x) = sum_b coefs[c, b] k(x, v_b) + biases[c], and the class with the largest f wins.

    The kernel is one of

        gaussian      exp(-gamma sum_j relevance_j (x_j - v_j)^2)
        laplacian     exp(-gamma sum_j relevance_j |x_j - v_j|)
        polynomial    (gamma sum_j relevance_j x_j v_j + coef0)^degree
        linear        sum_j relevance_j x_j v_j

    Parameters
    ----------
    classes
        The labels, in order of first arrival.
    vectors
        Support vectors, scaled, shape (n_vectors, d).
    coefs
        Shape (n_classes, n_vectors).
    biases
        Shape (n_classes,).
    gamma
        Of the kernel.
    relevance
        Of each column, shape (d,); 1 where the metric was not learned.
    scaler
        From raw rows to scaled ones.
    kernel, degree, coef0
        Of the kernel.

    Examples
    --------
    >>> model = KernelExpansion(
    ...     ["out", "in"], np.array([[0.0, 0.0]]), np.array([[-1.0], [1.0]]), np.array([0.5, -0.5]), gamma=1.0,
    ...     relevance=np.ones(2), scaler=Scaler.identity(["x", "y"])
    ... )
    >>> model.predict(np.array([[0.1, 0.2], [1.0, 1.0]]))
    ['in', 'out']
    """

    _arrays: ClassVar[tuple[str, ...]] = ("vectors", "coefs", "biases", "relevance")
    classes: list[Any]
    vectors: NDArray[np.float64]
    coefs: NDArray[np.float64]
    biases: NDArray[np.float64]
    gamma: float
    relevance: NDArray[np.float64]
    scaler: Scaler
    kernel: str = "gaussian"
    degree: int = 3
    coef0: float = 0.0

    def __post_init__(self) -> None:
        c, (n, d) = len(self.classes), self.vectors.shape
        if self.coefs.shape != (c, n) or self.biases.shape != (c,) or self.relevance.shape != (d,):
            raise ValueError(
                f"{n} vectors of {d} columns and {c} classes need coefs of shape {(c, n)}, biases of shape {(c,)} and "
                f"relevance of shape {(d,)}; got {self.coefs.shape}, {self.biases.shape} and {self.relevance.shape}"
            )
        if len(self.scaler.names) != d:
            raise ValueError(f"vectors of {d} columns, but the scaler has {len(self.scaler.names)}")
        for values in (self.vectors, self.coefs, self.biases, self.relevance):
            if not np.isfinite(values).all():
                raise ValueError("vectors, coefs, biases and relevance must be finite")
        if not 0.0 < self.gamma < math.inf or (self.relevance < 0.0).any():
            raise ValueError(f"`gamma` must be positive and `relevance` at least 0, got gamma={self.gamma!r}")
        if self.kernel not in ("gaussian", "laplacian", "polynomial", "linear"):
            raise ValueError(f"{self.kernel!r} is not a kernel known here")

    def scaled_by(self, scaler: Scaler) -> KernelExpansion:
        """The same Gaussian function of raw rows in which no value is missing or cut, by another scaling, not ranks.

        Parameters
        ----------
        scaler
            The other scaling, of the same columns.
        """
        own = self.scaler
        squares = np.divide(own.scale**2, scaler.scale**2, out=np.zeros_like(scaler.scale), where=scaler.scale > 0.0)
        raw = np.divide(self.vectors, own.scale, out=np.zeros_like(self.vectors), where=own.scale > 0.0) + own.shift
        vectors = (raw - scaler.shift) * scaler.scale
        return replace(self, vectors=vectors, relevance=self.relevance * squares, scaler=scaler)

    def decision_function(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """f of every class, shape (n, n_classes), for raw rows of shape (n, d), NaN where missing.

        Parameters
        ----------
        X
            Raw rows, float64, shape (n, d), NaN where missing.
        """
        step = max(1, _LARGEST_BLOCK // max(1, len(self.vectors)))
        out = np.empty((len(X), len(self.classes)))
        for first in range(0, len(X), step):
            part = slice(first, first + step)
            out[part] = self._values(self.scaler(X[part])) @ self.coefs.T + self.biases
        return out

    def _values(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The kernel between scaled rows and the vectors."""
        if self.kernel == "laplacian":
            distance = np.zeros((len(rows), len(self.vectors)))
            for j, relevance in enumerate(self.relevance):
                distance += relevance * np.abs(rows[:, j, None] - self.vectors[:, j])
            return np.asarray(np.exp(-self.gamma * distance))
        root = np.sqrt(self.relevance)
        rows, vectors = rows * root, self.vectors * root
        products = rows @ vectors.T
        if self.kernel == "linear":
            return np.asarray(products)
        if self.kernel == "polynomial":
            return np.asarray((self.gamma * products + self.coef0) ** self.degree)
        square = (rows**2).sum(axis=1)[:, None] + (vectors**2).sum(axis=1) - 2.0 * products
        return np.asarray(np.exp(-self.gamma * np.maximum(square, 0.0)))

    def _settings(self) -> dict[str, Any]:
        return {"gamma": self.gamma.hex(), "kernel": self.kernel, "degree": self.degree, "coef0": self.coef0.hex()}

    @classmethod
    def _checked(cls, header: dict[str, Any]) -> dict[str, Any]:
        degree, coef0 = header["degree"], float.fromhex(header["coef0"])
        if type(degree) is not int or not 1 <= degree <= _MOST_DEGREE or not math.isfinite(coef0):
            raise ValueError(f"a kernel of degree {degree!r} and coef0 {coef0!r}")
        gamma = float.fromhex(header["gamma"])
        return {"gamma": gamma, "kernel": header["kernel"], "degree": degree, "coef0": coef0}


@dataclass(slots=True)
class LinearModel(_Saved):
    """One hyperplane a class: f_c(x) = coef[c] . x + intercept[c], and the class with the largest f wins.

    Parameters
    ----------
    classes
        The labels.
    coef
        Shape (n_classes, d), for scaled rows. Of two classes the first has the second's hyperplane with opposite sign.
    intercept
        Shape (n_classes,).
    scaler
        From raw rows to scaled ones.

    Examples
    --------
    >>> model = LinearModel(["low", "high"], np.array([[-1.0], [1.0]]), np.array([2.0, -2.0]), Scaler.identity(["x"]))
    >>> model.predict(np.array([[1.0], [5.0]]))
    ['low', 'high']
    >>> model.polytopes().predict(np.array([[1.0], [5.0]]))
    ['low', 'high']
    """

    _arrays: ClassVar[tuple[str, ...]] = ("coef", "intercept")
    classes: list[Any]
    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    scaler: Scaler

    def __post_init__(self) -> None:
        c, d = self.coef.shape
        if len(self.classes) != c or self.intercept.shape != (c,) or len(self.scaler.names) != d:
            raise ValueError(
                f"coef of shape {self.coef.shape} needs {c} classes, intercept of shape {(c,)} and {d} columns; got "
                f"{len(self.classes)}, {self.intercept.shape} and {len(self.scaler.names)}"
            )
        if not (np.isfinite(self.coef).all() and np.isfinite(self.intercept).all()):
            raise ValueError("coef and intercept must be finite")

    def decision_function(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """f of every class, shape (n, n_classes), for raw rows of shape (n, d), NaN where missing.

        Parameters
        ----------
        X
            Raw rows, float64, shape (n, d), NaN where missing.
        """
        return np.asarray(self.scaler(X) @ self.coef.T + self.intercept)

    def polytopes(self) -> Polytopes:
        """The same as polytopes of one face, which `CPMClassifier(n_faces=1)` can adopt."""
        return Polytopes(self.classes, self.coef[:, None, :], self.intercept[:, None], self.scaler)


@dataclass(slots=True)
class Trees(_Model):
    """Trees that each add to the score of a class; the class with the largest score wins.

    A row goes from a tree's root to a leaf: left where its value in the node's column is at most the threshold, right
    where it is larger, and where it is missing as the node says.

    Parameters
    ----------
    classes
        The labels.
    n_columns
        The columns of a row.
    start
        What scores begin with, shape (n_classes,).
    roots, outputs
        The first node of each tree, and the number of the class it adds to, shape (n_trees,).
    feature, left, right, missing, threshold, value
        Of each node, shape (n_nodes,): the column looked at, the nodes that follow (left is -1 at a leaf), the
        threshold, and what a leaf adds.

    Examples
    --------
    >>> stump = Trees(
    ...     ["low", "high"], 1, np.zeros(2), np.array([0]), np.array([1]), feature=np.array([0, 0, 0]),
    ...     left=np.array([1, -1, -1]), right=np.array([2, -1, -1]), missing=np.array([1, -1, -1]),
    ...     threshold=np.array([3.0, 0.0, 0.0]), value=np.array([0.0, -1.0, 1.0]),
    ... )
    >>> stump.predict(np.array([[1.0], [5.0], [np.nan]]))
    ['low', 'high', 'low']
    """

    classes: list[Any]
    n_columns: int
    start: NDArray[np.float64]
    roots: NDArray[np.int64]
    outputs: NDArray[np.int64]
    feature: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    missing: NDArray[np.int64]
    threshold: NDArray[np.float64]
    value: NDArray[np.float64]

    def __post_init__(self) -> None:
        n, (n_trees,) = len(self.left), self.roots.shape
        nodes = (self.feature, self.left, self.right, self.missing, self.threshold, self.value)
        if any(array.shape != (n,) for array in nodes) or self.outputs.shape != (n_trees,):
            raise ValueError("nodes, or trees, are described by arrays of several lengths")
        inner = np.flatnonzero(self.left >= 0)
        left, right, missing = (array[inner] for array in (self.left, self.right, self.missing))
        if not ((left > inner) & (right > inner) & (left < n) & (right < n)).all():
            raise ValueError("the nodes of a tree must follow one another")
        if not ((missing == left) | (missing == right)).all():
            raise ValueError("where a value is missing a row goes on to one of the two nodes that follow")
        named = ((self.roots, n), (self.outputs, len(self.classes)), (self.feature[inner], self.n_columns))
        if not all(((array >= 0) & (array < n_most)).all() for array, n_most in named):
            raise ValueError("trees name nodes, classes or columns that are not there")
        if len(met := np.concatenate([self.roots, left, right])) > len(np.unique(met)):
            raise ValueError("there must be one way to each node")
        if self.start.shape != (len(self.classes),) or np.isnan(self.threshold).any():
            raise ValueError("scores must begin with a number for each class, and no threshold may be NaN")
        if not (np.isfinite(self.start).all() and np.isfinite(self.value).all()):
            raise ValueError("scores must be finite")

    def decision_function(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """The score of every class, shape (n, n_classes), for raw rows of shape (n, d), NaN where missing.

        Parameters
        ----------
        X
            Raw rows, float64, shape (n, d), NaN where missing.
        """
        scores, rows = np.tile(self.start, (len(X), 1)), np.arange(len(X))
        for root, output in zip(self.roots, self.outputs, strict=True):
            at = np.full(len(X), root)
            while (inner := self.left[at] >= 0).any():
                values = X[rows, self.feature[at]]
                follow = np.where(values <= self.threshold[at], self.left[at], self.right[at])
                at = np.where(inner, np.where(np.isnan(values), self.missing[at], follow), at)
            scores[:, output] += self.value[at]
        return scores


def _check_arrays(arrays: Mapping[str, NDArray[Any]], own: tuple[str, ...]) -> None:
    """Refuse arrays of other names or types than those of a model with arrays of its own."""
    expected = {*own, *_SCALER_ARRAYS}
    for optional in (_WINDOW_ARRAYS, _FITTED_ARRAYS):
        expected |= {*optional} if optional[0] in arrays else set()
    check_names(arrays, expected)
    for name, array in arrays.items():
        if array.dtype != _TYPES.get(name, np.float64):
            raise ValueError(f"array {name!r} has type {array.dtype}")


def _scaler(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Scaler:
    names = [decode_label(name) for name in header["names"]]
    limit = float.fromhex(header["limit"])
    fitted = [name for name in _FITTED_ARRAYS if name in arrays]
    for name in (*_SCALER_ARRAYS, *fitted):
        if arrays[name].shape != (len(names),) or not np.isfinite(arrays[name]).all():
            raise ValueError(f"array {name!r} does not hold a finite number for each of {len(names)} columns")
    if not limit > 0.0:
        raise ValueError(f"a limit of {limit}")
    if fitted and (arrays["spread"] < 0.0).any():
        raise ValueError("a column's spread is negative")
    own = {name: arrays[name] for name in (*_SCALER_ARRAYS, *fitted)}
    return Scaler(names, **own, limit=limit, windows=_windows(arrays))


def _windows(arrays: dict[str, NDArray[Any]]) -> list[NDArray[np.float64]] | None:
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
