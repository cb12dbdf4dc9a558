"""Refitted models as members of the vote: evaluation and archives."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.precompile import prepare
from streamsvm.core.schema import Array
from streamsvm.core.state import State
from streamsvm.features.rows import EncodedRows, Floats, Ints
from streamsvm.models import KernelExpansion, LinearModel, Scaler, Trees, codec
from streamsvm.models.archive import real
from streamsvm.online.saving import check_bounds
from streamsvm.refit import frozen_models, vote_kernels
from streamsvm.refit.solvers import Solver, allows_nan, proba_of
from streamsvm.refit.tasks import Solution, Task, is_wide
from streamsvm.refit.window_rows import csr_of, dense_of

logger = logging.getLogger(__name__)

# Trees are evaluated by masks up to this many words of four bytes, and up to this product of used columns and words per
# tree. Beyond these bounds, level-by-level evaluation is faster.
MASK_WORDS, MASK_COLUMNS = 1 << 21, 32

# Models that consist of plain arrays, by name, and the arrays that are proportional to the scores.
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (LinearModel, KernelExpansion, Trees)}
_SCORES = {LinearModel: ("coef", "intercept"), KernelExpansion: ("coefs", "biases"), Trees: ("start", "value")}
# Range of inverse temperatures, lower bound of a probability in a logarithm, and number of halvings of the range.
LEAST_INVERSE_TEMPERATURE, MOST_INVERSE_TEMPERATURE, _LEAST_PROBABILITY, _HALVINGS = 0.1, 1_000.0, 1e-12, 20


class RefittedModel:
    """Refitted model that predicts the learner's classes for raw rows.

    Parameters
    ----------
    solution
        The result of a solver.
    number
        Number of the refit.
    task
        Task of the solver. It is kept only for a foreign model, which archives store as its training data.
    inverse_temperature
        Exponent of the model's probabilities, see `calibrate`.

    Attributes
    ----------
    addresses
        Addresses of the compiled function that evaluates the model and of its state; 0 for a foreign model.
    """

    def __init__(
        self, solution: Solution, number: int, task: Task | None = None, inverse_temperature: float = 1.0
    ) -> None:
        self.model, self.settings, self.score = solution.model, solution.settings, solution.score
        self.number = number
        self.task: Task | None = None
        self.addresses = (0, 0)
        self._set_temperature(inverse_temperature)
        if not self.has_arrays:
            self.task, self._n_columns = task, int(self.model.n_features_in_)
            self._is_wide = task is not None and is_wide(task)
            self._allows_nan, self._has_failed = allows_nan(self.model), False

    @property
    def has_arrays(self) -> bool:
        """Whether the model consists of plain arrays."""
        return type(self.model) in _KINDS.values()

    def calibrate(self, rows: EncodedRows, codes: Ints, n_classes: int) -> None:
        """Choose the inverse temperature with the smallest log loss on new rows.

        The vote compares probabilities, and the scores of support vector machines are no logarithms of probabilities.

        Parameters
        ----------
        rows, codes
            Rows to which the model was not fitted, and their classes.
        n_classes
            Number of classes of the learner.
        """
        own = np.asarray(self.model.classes if self.has_arrays else self.model.classes_, np.int64)
        proba = np.zeros((len(rows), n_classes))
        self.evaluate(rows, np.ones(len(rows), np.int64), proba)
        # A foreign model may fail on rows, and a class may be new.
        is_known = np.isin(codes, own) & (proba.sum(axis=1) > 0.0)
        if is_known.any():
            at = (codes[is_known, None] == own).argmax(axis=1)
            found = best_inverse_temperature(proba[is_known][:, own], at)
            self._set_temperature(found * self.inverse_temperature)

    def _set_temperature(self, beta: float) -> None:
        self.inverse_temperature = min(max(beta, LEAST_INVERSE_TEMPERATURE), MOST_INVERSE_TEMPERATURE)
        if self.has_arrays:
            self._state, entry = _state_of(_with_scores_times(self.model, self.inverse_temperature))
            self.addresses = (compiled(entry).address, self._state.address)

    def evaluate(self, rows: EncodedRows, asked: NDArray[np.int64], proba: Floats) -> None:
        """Write the probabilities of all classes for some rows.

        Parameters
        ----------
        rows
            n rows.
        asked
            Shape (n,): ASKED for the rows to evaluate, which become ANSWERED.
        proba
            Output array of shape (n, n_classes).
        """
        if self.has_arrays:
            query = State(frozen_models.QUERY)
            fill(query, rows, asked[None], proba[None])
            compiled("evaluate")(query, *self.addresses)
            return
        at = np.flatnonzero(asked == frozen_models.ASKED)
        proba[at] = 0.0
        if len(at):
            classes = np.asarray(self.model.classes_, np.int64)
            proba[np.ix_(at, classes)] = self._proba(self._matrix(rows)[at])
        asked[at] = frozen_models.ANSWERED  # not if the model was interrupted

    def _matrix(self, rows: EncodedRows) -> Any:
        """Return rows in the form used for fitting, sparse or dense."""
        if self._is_wide:
            return csr_of(rows, self._n_columns)
        X = dense_of(rows, self._n_columns)
        return X if self._allows_nan else np.nan_to_num(X, copy=False)

    def _proba(self, X: Any) -> Floats:
        """Return the probabilities of the foreign model, 0 for rows on which it fails."""
        n, n_classes = X.shape[0], len(self.model.classes_)
        try:
            found = proba_of(self.model, X)
            if found.shape != (n, n_classes):
                raise ValueError(f"probabilities of shape {found.shape} for {n} rows and {n_classes} classes")
            # The last bits in double precision may depend on the other rows, because BLAS adds in blocks.
            proba = np.clip(np.nan_to_num(found), 0.0, 1.0)
            return tempered(proba, self.inverse_temperature).astype(np.float32).astype(np.float64)
        except Exception as error:  # a foreign model may raise anything, and the stream continues
            if n > 1:
                return np.vstack([self._proba(X[[k]]) for k in range(n)])
            if not self._has_failed:
                self._has_failed = True
                logger.warning(
                    "the model of refit %d, a %s, failed on some rows and does not vote there: %s: %s",
                    self.number,
                    type(self.model).__name__,
                    type(error).__name__,
                    error,
                )
            return np.zeros((1, n_classes))

    def __reduce__(self) -> Any:
        solution = Solution(self.model, self.settings, self.score)
        return RefittedModel, (solution, self.number, self.task, self.inverse_temperature)

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> codec.SavedState:
        """Return header and arrays; of a foreign model, those of its training data."""
        header = {"number": self.number, "inverse_temperature": self.inverse_temperature}
        if self.task is not None:
            return codec.nested({"task": self.task.state()}, header)
        model, arrays = self.model.state()
        score = None if math.isnan(self.score) else self.score
        return header | {"model": model, "settings": self.settings, "score": score}, arrays

    @classmethod
    def from_state(cls, state: codec.LoadedState, solver: Solver, n_classes: int) -> Self:
        """Restore a member from its `state`; a foreign model is fitted again.

        Raises
        ------
        ArchiveError, ValueError, TypeError
            If the state is invalid.
        """
        (header, arrays), task = state, None
        if "task" in header:
            task = Task.from_state(codec.part_of(state, "task"), None, n_classes)
            solution = solver.solve(task)
        else:
            model = _KINDS[header["model"]["class"]].from_state(header["model"], arrays)
            check_bounds("classes", np.array(model.classes, np.int64), 0, n_classes - 1)
            score = math.nan if header["score"] is None else float(header["score"])
            solution = Solution(model, dict(header["settings"]), score)
        return cls(solution, int(header["number"]), task, real(header["inverse_temperature"]))


def tempered(proba: Floats, beta: float) -> Floats:
    """Return normalised powers of the probabilities of rows; zeros stay."""
    if beta == 1.0:
        return proba
    most = proba.max(axis=1, keepdims=True)
    powers = np.divide(proba, most, out=np.zeros_like(proba), where=most > 0.0) ** beta
    return np.asarray(powers / np.maximum(powers.sum(axis=1, keepdims=True), 1.0))


def best_inverse_temperature(proba: Floats, codes: Ints) -> float:
    """Return the exponent of the probabilities with the smallest log loss.

    `proba` has shape (n, n_classes), and `codes` are the columns of the labels. Labels are smoothed by the weight of
    one row, because the exponent of a model without errors has no bound.
    """
    n, logs = len(proba), np.log(np.maximum(proba, _LEAST_PROBABILITY))
    wanted = float(n * logs[np.arange(n), codes].mean() + logs.mean()) / (n + 1)
    below = np.where(proba > 0.0, logs - logs.max(axis=1, keepdims=True), -math.inf)
    low, high = math.log(LEAST_INVERSE_TEMPERATURE), math.log(MOST_INVERSE_TEMPERATURE)
    for _ in range(_HALVINGS):  # the log loss is convex, and this is its slope
        middle = (low + high) / 2.0
        powers = np.exp(math.exp(middle) * below)  # faster than powers of probabilities
        expected = float(np.mean((powers * logs).sum(axis=1) / powers.sum(axis=1)))
        low, high = (middle, high) if expected < wanted else (low, middle)
    return math.exp((low + high) / 2.0)


def _with_scores_times(model: Any, factor: float) -> Any:
    """Return a model of plain arrays whose scores are multiplied by a factor."""
    if factor == 1.0:
        return model
    return replace(model, **{name: getattr(model, name) * factor for name in _SCORES[type(model)]})


@cache
def compiled(name: str) -> Any:
    """Return a compiled entry point.

    Objects do not store it, because it has references to the compiler.
    """
    entry = (frozen_models.ENTRY_POINTS | vote_kernels.ENTRY_POINTS)[name]
    prepare([entry])
    return entry.compile()


def fill(state: State, rows: EncodedRows, asked: NDArray[np.int64], proba: Floats) -> None:
    """Bind a query to rows and to memory for the results.

    `asked` has shape (members, n), and `proba` has shape (members, n, n_classes).
    """
    state.shared, state.first, state.end = rows.shared, 0, len(rows)
    state.bind(
        values=np.ascontiguousarray(rows.values, np.float64),
        columns=np.ascontiguousarray(rows.columns, np.int64),
        indptr=np.ascontiguousarray(rows.indptr, np.int64),
        asked=asked,
        proba=proba,
    )


def _state_of(model: LinearModel | KernelExpansion | Trees) -> tuple[State, str]:
    """Return the compiled state of a model and the name of its entry point."""
    if isinstance(model, LinearModel):
        return _planes(model), "run_planes"
    if isinstance(model, KernelExpansion):
        return _expansion(model), "run_expansion"
    return _masked_trees(model) or _walked_trees(model), "run_trees"


def _planes(model: LinearModel) -> State:
    c, d = model.coef.shape
    state = State(frozen_models.PLANES, {"own_classes": c, "columns": d})
    state.bind(coef=np.ascontiguousarray(model.coef.T, np.float64))
    _scale(state, model.scaler)
    state.codes[:], state.start[:] = model.classes, model.intercept
    return state


def _expansion(model: KernelExpansion) -> State:
    sizes = {"own_classes": len(model.classes), "columns": model.vectors.shape[1], "lanes": frozen_models.LANES}
    state = State(frozen_models.EXPANSION, sizes)
    root = np.sqrt(model.gamma * model.relevance)
    state.bind(
        vectors=_in_lanes(model.vectors * root),
        coefs=_in_lanes(model.coefs.T),
    )
    _scale(state, model.scaler)
    state.root[:], state.codes[:], state.start[:] = root, model.classes, model.biases
    return state


def _in_lanes(rows: Floats) -> NDArray[np.float32]:
    """Return rows in blocks, by column within a block; zeros fill the last block."""
    n, d = rows.shape
    blocks = np.zeros((-(-n // frozen_models.LANES), frozen_models.LANES, d), np.float32)
    blocks.reshape(-1, d)[:n] = rows
    return np.ascontiguousarray(blocks.transpose(0, 2, 1))


def _trees(model: Trees, **sizes: int) -> State:
    """Return the state of trees, without what either way of evaluation needs."""
    sizes = {dim: 0 for _, array in frozen_models.TREES.of(Array) for dim in array.dims} | sizes
    sizes |= {"own_classes": len(model.classes), "twice_columns": 2 * model.n_columns + 1, "trees": len(model.roots)}
    state = State(frozen_models.TREES, sizes)
    state.row[::2] = -math.inf
    state.outputs[:], state.codes[:], state.start[:] = model.outputs, model.classes, model.start
    return state


def _walked_trees(model: Trees) -> State:
    """Return the state of trees that are evaluated level by level.

    Nodes are ordered by level over all trees, with siblings adjacent.
    """
    levels, depths = _levels(model), np.zeros(len(model.roots), np.int64)
    for depth, (_, trees) in enumerate(levels):
        depths[trees] = depth
    old = np.concatenate([nodes for nodes, _ in levels])
    new = np.empty(len(model.left), np.int64)
    new[old] = np.arange(len(old))
    left, feature, d = model.left[old], model.feature[old], model.n_columns
    is_leaf = left < 0
    deepest_first = np.argsort(-depths, kind="stable")
    n_trees, n_levels = len(deepest_first), int(depths.max(initial=0))
    state = _trees(model, walked=n_trees, levels=n_levels, nodes=len(old))
    state.roots[:], state.places[deepest_first] = deepest_first, np.arange(n_trees)
    state.growing[:] = n_trees - np.bincount(depths, minlength=1).cumsum()[:n_levels]
    nodes = state.nodes
    nodes["threshold"][:] = np.where(is_leaf, model.value[old], model.threshold[old])
    nodes["value"][:] = np.where(is_leaf, 2 * d, 2 * feature + (model.missing[old] != left))
    nodes["next"][:] = np.where(is_leaf, np.arange(len(old)), new[left])
    return state


def _levels(model: Trees) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return nodes and their trees by level over all trees, with siblings adjacent."""
    nodes, trees, levels = model.roots, np.arange(len(model.roots)), []
    while len(nodes):
        levels.append((nodes, trees))
        is_inner = model.left[nodes] >= 0
        nodes, trees = nodes[is_inner], np.repeat(trees[is_inner], 2)
        nodes = np.column_stack([model.left[nodes], model.right[nodes]]).ravel()
    return levels


def _masked_trees(model: Trees) -> State | None:
    """Return the state of trees evaluated by masks, or None if this is not faster."""
    left, right, n_trees = model.left, model.right, len(model.roots)
    inner_nodes = [nodes[left[nodes] >= 0] for nodes, _ in _levels(model)]
    # Leaves below each node: their number, and the first bit.
    leaves, first = np.ones(len(left), np.int64), np.full(len(left), -1)
    for nodes in reversed(inner_nodes):
        leaves[nodes] = leaves[left[nodes]] + leaves[right[nodes]]
    n_words = -(-int(leaves[model.roots].max(initial=1)) // frozen_models.WORD)  # of a tree
    first[model.roots] = np.arange(n_trees) * n_words * frozen_models.WORD
    for nodes in inner_nodes:
        first[left[nodes]], first[right[nodes]] = first[nodes], first[nodes] + leaves[left[nodes]]
    inner = np.flatnonzero((left >= 0) & (first >= 0))
    nodes = inner[np.lexsort((model.threshold[inner], model.feature[inner]))]
    column, threshold = model.feature[nodes], model.threshold[nodes]
    is_column = _differs(column)
    is_mask = is_column | _differs(threshold)
    at, n = is_mask.cumsum() - 1, int(is_mask.sum())
    # A missing value has a separate mask, of the nodes that send it to the right.
    strays = np.flatnonzero(model.missing[nodes] == model.right[nodes])
    is_stray = _differs(column[strays])
    n_masks, n_used, words = n + int(is_stray.sum()), int(is_column.sum()), n_words * n_trees
    if n_masks * words > MASK_WORDS or n_used * n_words > MASK_COLUMNS:
        return None
    state = _trees(model, used=n_used, thresholds=n, masks=n_masks, words=words, bits=words * frozen_models.WORD)
    state.thresholds[:] = threshold[is_mask]
    masked, is_first = np.concatenate([nodes, nodes[strays]]), np.concatenate([is_column, is_stray])
    at = np.concatenate([at, n + is_stray.cumsum() - 1])
    compiled("build_masks")(state.masks, at, is_first, first[masked], first[masked] + leaves[left[masked]])
    own = state.used
    own["column"][:], own["first"][:], own["missing"][:] = column[is_column], at[: len(nodes)][is_column], -1
    own["end"][:] = np.append(own["first"][1:], n)
    own["missing"][np.searchsorted(own["column"], column[strays][is_stray])] = np.arange(n, n_masks)
    leaf = np.flatnonzero((left < 0) & (first >= 0))
    state.leaves[first[leaf]] = model.value[leaf]
    return state


def _differs(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether each value differs from the previous one."""
    return np.concatenate([np.ones(min(len(values), 1), bool), values[1:] != values[:-1]])


def _scale(state: State, scaler: Scaler) -> None:
    state.shift[:], state.scale[:], state.limit = scaler.shift, scaler.scale, min(scaler.limit, 1e300)
