"""Models as plain arrays: linear models, polytopes, kernel expansions and trees."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from streamsvm.models.archive import check_names, decode_labels, encode_label, whole
from streamsvm.models.saved import Archived
from streamsvm.models.scaling import Scaler
from streamsvm.parameters import ParameterError

# Kernel values held at a time.
_LARGEST_BLOCK = 1 << 22


class Model:
    """A model with a score for each class; the class with the largest score wins."""

    __slots__ = ()
    classes: list[Any]

    @abstractmethod
    def decision_function(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute the score of each class for raw rows.

        Parameters
        ----------
        X
            Raw rows, float64, shape (n, d), NaN where missing.

        Returns
        -------
        ndarray of float64, shape (n, n_classes)
            The scores.
        """

    def predict(self, X: NDArray[np.float64]) -> list[Any]:
        """Predict the labels of raw rows.

        Parameters
        ----------
        X
            Raw rows, float64, shape (n, d), NaN where missing.
        """
        return [self.classes[c] for c in self.decision_function(X).argmax(axis=1)]


class SavedModel(Archived, Model):
    """A model with a scaler that is saved as one archive."""

    __slots__ = ()
    _arrays: ClassVar[tuple[str, ...]]
    _numbers: ClassVar[tuple[str, ...]] = ()
    scaler: Scaler

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the header and the arrays of an archive."""
        header, arrays = self.scaler.state()
        header |= {"class": type(self).__name__, "classes": [encode_label(label) for label in self.classes]}
        header |= {name: getattr(self, name).hex() for name in self._numbers}
        return header, arrays | {name: getattr(self, name) for name in self._arrays}

    @classmethod
    def _from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        scaler = Scaler.from_state(header, arrays, cls._arrays)
        own: dict[str, Any] = {name: arrays[name] for name in cls._arrays}
        own |= {name: float.fromhex(header[name]) for name in cls._numbers}
        return cls(classes=decode_labels(header["classes"]), scaler=scaler, **own)  # type: ignore[call-arg]


def _check_arrays(model: Any, **shapes: tuple[int, ...]) -> None:
    """Refuse arrays of other shapes, and values that are not finite."""
    for name, shape in shapes.items():
        values = getattr(model, name)
        if values.shape != shape:
            raise ValueError(
                f"`{name}` has shape {values.shape}, not {shape}: there are {len(model.classes)} classes, and the "
                f"scaler has {len(model.scaler.names)} columns"
            )
        if not np.isfinite(values).all():
            raise ValueError(f"`{name}` must be finite")


@dataclass(slots=True)
class Polytopes(Model):
    """Piecewise linear model with one polytope per class.

    It predicts the class with the largest f_c(x) = max_k faces[c, k] . x + biases[c, k].

    Parameters
    ----------
    classes
        The labels, in order of first arrival.
    faces
        Shape (n_classes, n_faces, d), for scaled rows.
    biases
        Shape (n_classes, n_faces).
    scaler
        Scaling from raw to scaled rows.
    inverse_temperature
        Probabilities are the softmax of inverse_temperature * f_c.
    noise
        Share of labels that are assumed random.
    """

    classes: list[Any]
    faces: NDArray[np.float64]
    biases: NDArray[np.float64]
    scaler: Scaler
    inverse_temperature: float = 1.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        c, (_, k, _) = len(self.classes), self.faces.shape
        _check_arrays(self, faces=(c, k, len(self.scaler.names)), biases=(c, k))
        if not 0.0 < self.inverse_temperature < np.inf:
            raise ParameterError("inverse_temperature", f"must be a positive number, got {self.inverse_temperature}")
        if not 0.0 <= self.noise < 1.0:
            raise ParameterError("noise", f"must be a share below 1, got {self.noise}")

    def scaled_by(self, scaler: Scaler) -> Polytopes:
        """Express the function with another scaler.

        Scores are equal for rows without missing or clipped values.

        Parameters
        ----------
        scaler
            The other scaler, of the same columns, not by rank.
        """
        own = self.scaler
        ratio = np.divide(own.scale, scaler.scale, out=np.zeros_like(scaler.scale), where=scaler.scale > 0.0)
        biases = self.biases + self.faces @ ((scaler.shift - own.shift) * own.scale)
        return replace(self, faces=self.faces * ratio, biases=biases, scaler=scaler)

    def decision_function(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        scores = np.einsum("nd,ckd->nck", self.scaler(X), self.faces) + self.biases
        return np.asarray(scores.max(axis=2))


@dataclass(slots=True)
class KernelExpansion(SavedModel):
    """Kernel machine with coefficients of support vectors.

    It predicts the class with the largest f_c(x) = sum_b coefs[c, b] k(x, v_b) + biases[c]. The kernel is Gaussian,
    k(x, v) = exp(-gamma sum_j relevance_j (x_j - v_j)^2).

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
        Width parameter of the kernel.
    relevance
        Relevance of each column, shape (d,); 1 if the metric is fixed.
    scaler
        Scaling from raw to scaled rows.

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
    _numbers: ClassVar[tuple[str, ...]] = ("gamma",)
    classes: list[Any]
    vectors: NDArray[np.float64]
    coefs: NDArray[np.float64]
    biases: NDArray[np.float64]
    gamma: float
    relevance: NDArray[np.float64]
    scaler: Scaler

    def __post_init__(self) -> None:
        c, n, d = len(self.classes), len(self.vectors), len(self.scaler.names)
        _check_arrays(self, vectors=(n, d), coefs=(c, n), biases=(c,), relevance=(d,))
        if not 0.0 < self.gamma < math.inf or (self.relevance < 0.0).any():
            raise ParameterError("gamma", f"must be positive and `relevance` at least 0, got gamma={self.gamma!r}")

    def scaled_by(self, scaler: Scaler) -> KernelExpansion:
        """Express the function with another scaler.

        Scores are equal for rows without missing or clipped values.

        Parameters
        ----------
        scaler
            The other scaler, of the same columns, not by rank.
        """
        own = self.scaler
        squares = np.divide(own.scale**2, scaler.scale**2, out=np.zeros_like(scaler.scale), where=scaler.scale > 0.0)
        raw = np.divide(self.vectors, own.scale, out=np.zeros_like(self.vectors), where=own.scale > 0.0) + own.shift
        vectors = (raw - scaler.shift) * scaler.scale
        return replace(self, vectors=vectors, relevance=self.relevance * squares, scaler=scaler)

    def decision_function(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        step = max(1, _LARGEST_BLOCK // max(1, len(self.vectors)))
        out = np.empty((len(X), len(self.classes)))
        for first in range(0, len(X), step):
            part = slice(first, first + step)
            out[part] = self._values(self.scaler(X[part])) @ self.coefs.T + self.biases
        return out

    def _values(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the kernel values of scaled rows and the vectors."""
        root = np.sqrt(self.relevance)
        rows, vectors = rows * root, self.vectors * root
        square = (rows**2).sum(axis=1)[:, None] + (vectors**2).sum(axis=1) - 2.0 * (rows @ vectors.T)
        return np.asarray(np.exp(-self.gamma * np.maximum(square, 0.0)))


@dataclass(slots=True)
class LinearModel(SavedModel):
    """Linear model with one hyperplane per class.

    It predicts the class with the largest f_c(x) = coef[c] . x + intercept[c].

    Parameters
    ----------
    classes
        The labels.
    coef
        Shape (n_classes, d), for scaled rows. With two classes, the two hyperplanes have opposite signs.
    intercept
        Shape (n_classes,).
    scaler
        Scaling from raw to scaled rows.

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
        c = len(self.classes)
        _check_arrays(self, coef=(c, len(self.scaler.names)), intercept=(c,))

    def decision_function(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(self.scaler(X) @ self.coef.T + self.intercept)

    def polytopes(self) -> Polytopes:
        """Convert to polytopes of one face, which `CPMClassifier(n_faces=1)` can adopt."""
        return Polytopes(self.classes, self.coef[:, None, :], self.intercept[:, None], self.scaler)


# The arrays of an archive.
_ARRAYS: dict[str, Any] = {name: np.dtype(np.float64) for name in ("start", "threshold", "value")}
_ARRAYS |= dict.fromkeys(("roots", "outputs", "feature", "left", "right", "missing"), np.dtype(np.int64))


@dataclass(slots=True)
class Trees(Archived, Model):
    """Boosted trees; each adds to the score of a class.

    The next node of an inner node is `left` if the value is at most the threshold, and `right` if it is larger. It is
    `missing` if the value is missing.

    Parameters
    ----------
    classes
        The labels.
    n_columns
        Number of columns.
    start
        Initial scores, shape (n_classes,).
    roots, outputs
        Root node and class number of each tree, shape (n_trees,).
    feature, left, right, missing, threshold, value
        Column, next nodes (left is -1 at a leaf), threshold and leaf value of each node, shape (n_nodes,).

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
            raise ValueError("the arrays of nodes, or of trees, differ in length")
        inner = np.flatnonzero(self.left >= 0)
        left, right, missing = (array[inner] for array in (self.left, self.right, self.missing))
        if not ((left > inner) & (right > inner) & (left < n) & (right < n)).all():
            raise ValueError("the children of a node must have larger numbers than the node")
        if not ((missing == left) | (missing == right)).all():
            raise ValueError("the node for missing values must be one of the two children")
        named = ((self.roots, n), (self.outputs, len(self.classes)), (self.feature[inner], self.n_columns))
        if not all(((array >= 0) & (array < n_most)).all() for array, n_most in named):
            raise ValueError("a tree refers to a node, class or column that does not exist")
        if len(met := np.concatenate([self.roots, left, right])) > len(np.unique(met)):
            raise ValueError("a node must not have several parents")
        if self.start.shape != (len(self.classes),) or np.isnan(self.threshold).any():
            raise ValueError("there must be an initial score for each class, and no threshold may be NaN")
        if not (np.isfinite(self.start).all() and np.isfinite(self.value).all()):
            raise ValueError("scores must be finite")

    def decision_function(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        scores, rows = np.tile(self.start, (len(X), 1)), np.arange(len(X))
        for root, output in zip(self.roots, self.outputs, strict=True):
            at = np.full(len(X), root)
            while (inner := self.left[at] >= 0).any():
                values = X[rows, self.feature[at]]
                follow = np.where(values <= self.threshold[at], self.left[at], self.right[at])
                at = np.where(inner, np.where(np.isnan(values), self.missing[at], follow), at)
            scores[:, output] += self.value[at]
        return scores

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the header and the arrays of an archive."""
        header = {"class": "Trees", "classes": [encode_label(label) for label in self.classes]}
        return header | {"n_columns": self.n_columns}, {name: getattr(self, name) for name in _ARRAYS}

    @classmethod
    def _from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        check_names(arrays, set(_ARRAYS))
        for name, dtype in _ARRAYS.items():
            if arrays[name].dtype != dtype:
                raise ValueError(f"array {name!r} has type {arrays[name].dtype}")
        return cls(decode_labels(header["classes"]), whole(header["n_columns"]), **arrays)
