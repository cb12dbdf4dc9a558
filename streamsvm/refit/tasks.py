"""Tasks of solvers: a window with its settings, and its rows as scaled matrices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.precompile import prepare
from streamsvm.features.rows import Floats
from streamsvm.models import ArchiveError, Scaler
from streamsvm.models.codec import LoadedState, SavedState
from streamsvm.models.scaling import cut
from streamsvm.online.saving import check_bounds
from streamsvm.online.scaling import new_rows
from streamsvm.refit.outliers import ENTRY_POINTS
from streamsvm.refit.window_rows import WindowRows, csr_of, dense_of

# Scaled values are clipped to this bound, as in the online learners.
CLIP = 10.0
# Greatest number of values in a dense matrix.
DENSE_MOST = 60_000_000


@dataclass(frozen=True, slots=True)
class Task:
    """A window to solve.

    Parameters
    ----------
    window
        Rows in order of arrival, with class numbers.
    n_columns
        Number of columns of the learner.
    relevance
        Relevance of each column in the learner's metric, shape (n_columns,); None without a metric.
    carried
        Best settings of the previous refit.
    previous
        Newest model, to start from if it is linear.
    seed
        Random seed.
    """

    window: WindowRows
    n_columns: int
    relevance: Floats | None = None
    carried: Mapping[str, Any] | None = None
    previous: Any = None
    seed: int = 0

    def state(self) -> SavedState:
        """Return header and arrays for an archive; `previous` is stored with the members."""
        header, arrays = self.window.state()
        if self.relevance is not None:
            arrays["relevance"] = self.relevance
        return header | {"n_columns": self.n_columns, "carried": dict(self.carried or {}), "seed": self.seed}, arrays

    @classmethod
    def from_state(cls, state: LoadedState, previous: Any, n_classes: int) -> Self:
        """Restore a task from its `state`.

        Raises
        ------
        ArchiveError, ValueError, TypeError
            If the state is invalid.
        """
        header, arrays = state
        window, d, relevance = WindowRows.from_state(state), int(header["n_columns"]), arrays.get("relevance")
        check_bounds("columns", window.rows.columns, 0, d - 1)
        check_bounds("codes", window.codes, 0, n_classes - 1)
        if relevance is not None and (
            relevance.shape != (d,) or not ((relevance >= 0.0) & np.isfinite(relevance)).all()
        ):
            raise ArchiveError(f"there is no relevance for each of {d} columns")
        return cls(window, d, relevance, dict(header["carried"]), previous, int(header["seed"]))


@dataclass(frozen=True, slots=True)
class Solution:
    """The result of a solver.

    Parameters
    ----------
    model
        Model with the learner's class numbers and first columns, or a fitted estimator of scikit-learn.
    settings
        Settings of the fit, as JSON values.
    score
        Accuracy on the newer part of the window after a fit to the older part; NaN without a search.
    """

    model: Any
    settings: dict[str, Any]
    score: float = math.nan


def is_wide(task: Task) -> bool:
    """Return whether most values of a dense matrix would be missing."""
    n_values = np.count_nonzero(~np.isnan(task.window.rows.values))
    return bool(n_values < 0.2 * len(task.window) * task.n_columns)


def dense(task: Task) -> Floats:
    """Return the rows as a matrix, NaN if missing.

    Columns without values are 0, because some solvers need a value.
    """
    check_size(task)
    matrix = dense_of(task.window.rows, task.n_columns)
    matrix[:, np.isnan(matrix).all(axis=0)] = 0.0
    return matrix


def check_size(task: Task) -> None:
    """Refuse a window that is too large for a dense matrix."""
    size = len(task.window) * task.n_columns
    if size > DENSE_MOST:
        raise ValueError(
            f"{len(task.window)} rows of {task.n_columns} columns are too many for this solver: use a linear one "
            '("newton", "bcd"), or a smaller window'
        )


def scaled(task: Task, common: bool = False) -> tuple[Scaler, Any]:
    """Return the scaler and the scaled rows.

    Rows are scaled by mean and deviation of each column. Sparse rows are not centred. With outliers, the robust
    statistics of running scaling are used instead.
    """
    d, robust = task.n_columns, _running_statistics(task)
    if is_wide(task):
        X = csr_of(task.window.rows, d)
        count = np.bincount(X.indices, minlength=d)
        squares = np.bincount(X.indices, X.data**2, minlength=d)
        mean, spread = np.zeros(d), np.sqrt(squares / np.maximum(count, 1))
        if robust is not None:
            spread = np.hypot(*robust)
        scaler = _scaler(mean, spread, count, common)
        X.data[:] = cut(X.data * scaler.scale[X.indices], CLIP)
        return scaler, X
    X = dense(task)
    is_present = ~np.isnan(X)
    count = is_present.sum(axis=0)
    if robust is not None:
        mean, spread = robust
    else:
        mean = np.where(is_present, X, 0.0).sum(axis=0) / np.maximum(count, 1)
        spread = np.sqrt((np.where(is_present, X - mean, 0.0) ** 2).sum(axis=0) / np.maximum(count, 1))
    scaler = _scaler(mean, spread, count, common)
    return scaler, scaler(X)


def _running_statistics(task: Task) -> tuple[Floats, Floats] | None:
    """Return shifts and deviations of running scaling, or None without outliers.

    They are the statistics after the last row.
    """
    rows, d = task.window.rows, task.n_columns
    known = new_rows(max(d, int(rows.columns.max(initial=-1)) + 1), "standard")
    values, columns, indptr = (np.ascontiguousarray(a) for a in (rows.values, rows.columns, rows.indptr))
    entry = ENTRY_POINTS["count_outliers"]
    prepare([entry])
    if entry.compile()(known, values, columns, indptr, rows.shared) == 0:
        return None
    scale = known.scale[:d]
    return known.shift[:d].copy(), np.divide(1.0, scale, out=np.zeros(d), where=scale > 0.0)


def _scaler(mean: Floats, spread: Floats, count: NDArray[Any], common: bool) -> Scaler:
    d = len(mean)
    if common:
        spread = np.full(d, math.sqrt(float((spread**2).mean()))) * (spread > 0.0)
    scale = np.divide(1.0, spread, out=np.zeros(d), where=spread > 1e-150)
    return Scaler(list(range(d)), np.zeros(d, bool), mean, scale, count.astype(float), CLIP)
