"""Fitted models beside the learner: what they say of rows, and how they are kept."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.precompile import prepare
from streamsvm.core.state import State
from streamsvm.features.space import EncodedRows
from streamsvm.models import ArchiveError, KernelExpansion, LinearModel, Scaler, Trees
from streamsvm.models.archive import check_names
from streamsvm.refit import frozen_models as kernels
from streamsvm.refit.solvers import Solution, Task, allows_nan, is_wide, proba_of
from streamsvm.refit.window_rows import csr_of

logger = logging.getLogger(__name__)

# Trees are masked where that takes at most so many words of four bytes.
MASK_WORDS = 1 << 21

Floats = NDArray[np.float64]

# Of an archive's models: their arrays, by kind. Scalers of windows have numbers for names, and no more to keep.
_SCALE = ("shift", "scale", "count")
_ARRAYS: dict[str, tuple[str, ...]] = {
    "planes": ("coef", "intercept", *_SCALE),
    "expansion": ("vectors", "coefs", "biases", "relevance", *_SCALE),
    "trees": ("start", "roots", "outputs", "feature", "left", "right", "missing", "threshold", "value"),
}


class Expert:
    """A model that answers for raw rows with probabilities of the learner's classes.

    Parameters
    ----------
    solution
        What a solver found.
    number
        The refit it came of.

    Attributes
    ----------
    n_columns
        It looks at the learner's first so many columns.
    addresses
        Of what has it answer a `question` in compiled code, and of its model; 0 for a foreign model.
    """

    def __init__(self, solution: Solution, number: int) -> None:
        self.model, self.settings, self.score = solution.model, solution.settings, solution.score
        self.number = number
        self.task: Task | None = None
        self._is_wide = False
        if isinstance(self.model, LinearModel):
            self.n_columns, self._state, self._entry = self.model.coef.shape[1], _planes(self.model), "run_planes"
        elif isinstance(self.model, KernelExpansion):
            self.n_columns, self._entry = self.model.vectors.shape[1], "run_expansion"
            self._state = _expansion(self.model)
        elif isinstance(self.model, Trees):
            self.n_columns = self.model.n_columns
            self._state, self._entry = _masked_trees(self.model) or (_trees(self.model), "run_trees")
        else:
            self.n_columns, self._entry = int(self.model.n_features_in_), ""
            self._allows_nan, self._has_failed = allows_nan(self.model), False
        self.addresses = (_compiled(self._entry).address, self._state.address) if self.has_arrays else (0, 0)

    def fitted_to(self, task: Task | None) -> None:
        """Know what it was fitted to, where there are no arrays."""
        self.task, self._is_wide = task, task is not None and is_wide(task)

    @property
    def has_arrays(self) -> bool:
        """Whether it can be kept as plain arrays; else it is fitted anew when it is loaded."""
        return bool(self._entry)

    def ask(self, rows: EncodedRows, asked: NDArray[np.int64], proba: Floats) -> None:
        """Write the probabilities of all classes for the rows asked about.

        Parameters
        ----------
        rows
            n rows.
        asked
            Which of them, shape (n,): not 0.
        proba
            Shape (n, n_classes), zero where the model knows nothing.
        """
        if not self.has_arrays:
            self._ask_foreign(rows, asked, proba)
            return
        self.answer(question(rows, asked, proba))

    def answer(self, asking: State) -> None:
        """Answer a `question`."""
        _compiled("ask")(asking, *self.addresses)

    def _ask_foreign(self, rows: EncodedRows, asked: NDArray[np.int64], proba: Floats) -> None:
        at = np.flatnonzero(asked)
        if not len(at):
            return
        proba[np.ix_(at, np.asarray(self.model.classes_, np.int64))] = self._said_of(self._matrix(rows)[at])

    def _matrix(self, rows: EncodedRows) -> Any:
        """Rows as the foreign model was fitted to them: sparse, or dense with NaN where a value is missing."""
        if self._is_wide:
            return csr_of(rows, self.n_columns)
        X = np.full((len(rows), self.n_columns), math.nan)
        columns = np.tile(rows.columns, len(rows)) if rows.shared else rows.columns
        where, known = np.repeat(np.arange(len(rows)), np.diff(rows.indptr)), columns < self.n_columns
        X[where[known], columns[known]] = rows.values[known]
        return X if self._allows_nan else np.nan_to_num(X, copy=False)

    def _said_of(self, X: Any) -> Floats:
        """What the foreign model says of rows; of a row where it fails, nothing, whichever came with it."""
        n, n_classes = X.shape[0], len(self.model.classes_)
        try:
            found = proba_of(self.model, X)
            if found.shape != (n, n_classes):
                raise ValueError(f"probabilities of shape {found.shape} for {n} rows and {n_classes} classes")
            # In double precision the last bit may depend on which rows are asked about at once: BLAS sums up by blocks.
            return np.clip(np.nan_to_num(found), 0.0, 1.0).astype(np.float32).astype(np.float64)
        except Exception as error:  # nobody knows what a foreign model raises: the stream goes on
            if n > 1:
                return np.vstack([self._said_of(X[[k]]) for k in range(n)])
            if not self._has_failed:
                self._has_failed = True
                logger.warning(
                    "the model of refit %d, a %s, fails where it is asked, and says nothing there: %s: %s",
                    self.number,
                    type(self.model).__name__,
                    type(error).__name__,
                    error,
                )
            return np.zeros((1, n_classes))

    def __reduce__(self) -> Any:
        solution = Solution(self.model, self.settings, self.score)
        return _again, (solution, self.number, self.task)

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Header and arrays of a model that has them."""
        header: dict[str, Any] = {
            "kind": kind_of(self.model),
            "number": self.number,
            "settings": self.settings,
            "score": None if math.isnan(self.score) else self.score,
        }
        if not self.has_arrays:
            return header, {}
        header["classes"] = [int(c) for c in self.model.classes]
        header["n_columns"] = self.n_columns
        if not isinstance(self.model, Trees):
            header["limit"] = float(self.model.scaler.limit).hex()
        if isinstance(self.model, KernelExpansion):
            header["gamma"] = float(self.model.gamma).hex()
        return header, vars_of(self.model)

    @classmethod
    def from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], n_classes: int) -> Expert:
        """The expert whose `state` this is.

        Raises
        ------
        ArchiveError, ValueError
            Where it is none.
        """
        kind, classes, d = header["kind"], [int(c) for c in header["classes"]], int(header["n_columns"])
        if kind not in _ARRAYS or len(set(classes)) < len(classes) or not all(0 <= c < n_classes for c in classes):
            raise ArchiveError(f"a model of kind {kind!r} with classes {classes}")
        check_names(arrays, set(_ARRAYS[kind]))
        kept: dict[str, Any] = dict(arrays)
        model: Any
        if kind == "trees":
            model = Trees(classes, d, **kept)
        else:
            scale = [kept.pop(name) for name in _SCALE]
            if any(array.shape != (d,) or not np.isfinite(array).all() for array in scale):
                raise ArchiveError(f"a model of {d} columns is scaled in another way")
            shift, factor, count = scale
            if not (limit := float.fromhex(header["limit"])) > 0.0:
                raise ArchiveError(f"a model whose values are cut at {limit}")
            scaler = Scaler(list(range(d)), np.zeros(d, bool), shift, factor, count, limit)
            if kind == "planes":
                model = LinearModel(classes, **kept, scaler=scaler)
            else:
                model = KernelExpansion(classes, **kept, gamma=float.fromhex(header["gamma"]), scaler=scaler)
        score = header["score"]
        settings = dict(header["settings"])
        return cls(Solution(model, settings, math.nan if score is None else float(score)), int(header["number"]))


@cache
def _compiled(name: str) -> Any:
    """An entry that is called without the look at the arguments' types that each call of a dispatcher costs.

    No model holds it: whoever walks through a model would come to all of the compiler.
    """
    entry = kernels.ENTRIES[name]
    prepare([entry])
    return entry.compile()


def _again(solution: Solution, number: int, task: Task | None) -> Expert:
    expert = Expert(solution, number)
    expert.fitted_to(task)
    return expert


def kind_of(model: Any) -> str:
    """The kind of a model, as archives have it."""
    kinds = {LinearModel: "planes", KernelExpansion: "expansion", Trees: "trees"}
    return kinds.get(type(model), "estimator")


def vars_of(model: Any) -> dict[str, NDArray[Any]]:
    """The arrays of a model by name."""
    names = _ARRAYS[kind_of(model)]
    return {name: getattr(model.scaler if name in _SCALE else model, name) for name in names}


def question(rows: EncodedRows, asked: NDArray[np.int64], proba: Floats) -> State:
    """Rows as experts are asked about them."""
    asking = State(kernels.QUESTION)
    put(asking, rows, asked, proba)
    return asking


def put(asking: State, rows: EncodedRows, asked: NDArray[np.int64], proba: Floats) -> None:
    """Have a `question` be one about these rows."""
    asking.shared = rows.shared
    asking.lend(
        values=np.ascontiguousarray(rows.values, np.float64),
        columns=np.ascontiguousarray(rows.columns, np.int64),
        indptr=np.ascontiguousarray(rows.indptr, np.int64),
        asked=asked,
        proba=proba,
    )


def _planes(model: LinearModel) -> State:
    c, d = model.coef.shape
    state = State(kernels.PLANES, {"own_classes": c, "columns": d})
    state.lend(coef=np.ascontiguousarray(model.coef.T, np.float64))
    _scale(state, model.scaler)
    state.codes[:], state.start[:] = model.classes, model.intercept
    return state


def _expansion(model: KernelExpansion) -> State:
    sizes = {"own_classes": len(model.classes), "columns": model.vectors.shape[1], "lanes": kernels.LANES}
    state = State(kernels.EXPANSION, sizes)
    root = np.sqrt(model.gamma * model.relevance)
    state.lend(
        vectors=_in_lanes(model.vectors * root),
        coefs=_in_lanes(model.coefs.T),
    )
    _scale(state, model.scaler)
    state.root[:], state.codes[:], state.start[:] = root, model.classes, model.biases
    return state


def _in_lanes(rows: Floats) -> NDArray[np.float32]:
    """Blocks of rows, each column's values side by side; zeros at the end."""
    n, d = rows.shape
    blocks = np.zeros((-(-n // kernels.LANES), kernels.LANES, d), np.float32)
    blocks.reshape(-1, d)[:n] = rows
    return np.ascontiguousarray(blocks.transpose(0, 2, 1))


def _trees(model: Trees) -> State:
    """Nodes as `kernels.TREES` has them: level by level of all trees, the two that follow a node side by side."""
    depths, (old, trees) = np.empty_like(model.roots), np.empty((2, len(model.left)), np.int64)
    ordered = (model.roots, model.left, model.right, old, trees, depths)
    old = old[: _compiled("order_levels")(*map(np.ascontiguousarray, ordered))]
    new = np.empty(len(model.left), np.int64)
    new[old] = np.arange(len(old))
    left, feature, d = model.left[old], model.feature[old], model.n_columns
    is_leaf = left < 0
    deepest_first = np.argsort(-depths, kind="stable")
    n_trees, n_levels = len(deepest_first), int(depths.max(initial=0))
    state = State(
        kernels.TREES,
        {
            "own_classes": len(model.classes),
            "twice_columns": 2 * d + 1,
            "trees": n_trees,
            "levels": n_levels,
            "all_trees": n_trees,
            "nodes": len(old),
        },
    )
    state.row[::2] = -math.inf
    state.roots[:], state.places[deepest_first], state.outputs[:] = deepest_first, np.arange(n_trees), model.outputs
    state.growing[:] = n_trees - np.bincount(depths, minlength=1).cumsum()[:n_levels]
    nodes = state.nodes
    nodes["threshold"][:] = np.where(is_leaf, model.value[old], model.threshold[old])
    nodes["value"][:] = np.where(is_leaf, 2 * d, 2 * feature + (model.missing[old] != left))
    nodes["next"][:] = np.where(is_leaf, np.arange(len(old)), new[left])
    state.codes[:], state.start[:] = model.classes, model.start
    return state


def _masked_trees(model: Trees) -> tuple[State, str] | None:
    """Trees as `kernels.MASKED_TREES` has them; None where the masks would take too much memory."""
    leaves, first = np.empty((2, len(model.left)), np.int64)
    linked = map(np.ascontiguousarray, (model.left, model.right, model.roots))
    n_words = len(model.roots) * _compiled("number_leaves")(*linked, leaves, first)
    inner = np.flatnonzero((model.left >= 0) & (first >= 0))
    nodes = inner[np.lexsort((model.threshold[inner], model.feature[inner]))]
    column, threshold = model.feature[nodes], model.threshold[nodes]
    is_column = _differs(column)
    is_mask = is_column | _differs(threshold)
    at, n = is_mask.cumsum() - 1, int(is_mask.sum())
    # Where a value is missing there is one mask more, of the nodes that it goes to the right of.
    strays = np.flatnonzero(model.missing[nodes] == model.right[nodes])
    is_stray = _differs(column[strays])
    n_masks = n + int(is_stray.sum())
    if n_masks * n_words > MASK_WORDS:
        return None
    state = State(
        kernels.MASKED_TREES,
        {
            "own_classes": len(model.classes),
            "columns": model.n_columns,
            "looked_at": int(is_column.sum()),
            "masks": n_masks,
            "words": n_words,
            "bits": n_words * kernels.WORD,
            "trees": len(model.roots),
        },
    )
    state.thresholds[:n] = threshold[is_mask]
    masked, is_first = np.concatenate([nodes, nodes[strays]]), np.concatenate([is_column, is_stray])
    at = np.concatenate([at, n + is_stray.cumsum() - 1])
    _compiled("strike_out")(state.masks, at, is_first, first[masked], first[masked] + leaves[model.left[masked]])
    own = state.looked_at
    own["column"][:], own["first"][:] = column[is_column], at[: len(nodes)][is_column]
    own["end"][:] = np.append(own["first"][1:], n)
    own["missing"][:] = -1
    own["missing"][np.searchsorted(own["column"], column[strays][is_stray])] = np.arange(n, n_masks)
    is_leaf = (model.left < 0) & (first >= 0)
    state.value[first[is_leaf]] = model.value[is_leaf]
    state.outputs[:], state.codes[:], state.start[:] = model.outputs, model.classes, model.start
    return state, "run_masked_trees"


def _differs(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each value is another than the one before it."""
    return np.concatenate([np.ones(min(len(values), 1), bool), values[1:] != values[:-1]])


def _scale(state: State, scaler: Scaler) -> None:
    state.shift[:], state.scale[:], state.limit = scaler.shift, scaler.scale, min(scaler.limit, 1e300)
