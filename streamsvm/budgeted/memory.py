"""State of a budgeted kernel machine."""

from __future__ import annotations

from typing import Any

from streamsvm.budgeted import expansion, maintenance, merging
from streamsvm.budgeted import vectors as vector_kernels
from streamsvm.budgeted.inspection import mark_touched
from streamsvm.core import losses
from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.state import State
from streamsvm.features.rows import Floats
from streamsvm.features.scaler import UNLIMITED
from streamsvm.models import ArchiveError
from streamsvm.mutation import MutableParameter
from streamsvm.online import base, calibration
from streamsvm.online.scaling import new_rows

LOSSES = {"hinge": losses.HINGE, "log": losses.LOG}
# Step size of the learned metric.
METRIC_RATE = 0.05
# Number of float32 in a cache line.
CACHE_LINE = 16


class BudgetedMemory(base.OnlineClassifier):
    """Base of `BSGDClassifier`: its state and settings."""

    budget, learning_rate, l2 = MutableParameter(), MutableParameter(), MutableParameter()
    gamma: float | None
    loss: str
    scaling: str
    scaling_window: int
    class_weight: dict[Any, float] | str | None
    metric: str
    merges: int
    absorb: float
    # Members of an ensemble and replications of papers have other values.
    horizon = 100_000
    """Maximum t of Pegasos' steps, which would vanish on a long stream."""
    gamma_factor = 1.0
    """Factor of a gamma that follows the data."""

    def _room_for(self, n: int) -> int:
        return n if n < self.budget else UNLIMITED

    def _new_state(self, n_columns: int, n_classes: int, rows: State | None = None, *, room: int = UNLIMITED) -> State:
        """Return an empty state; `rows` is the substate with an ensemble's scaled rows."""
        own = new_rows(n_columns, self.scaling, self.scaling_window) if rows is None else rows
        if self.scaling == "none":
            own.limit = expansion.LARGEST_UNSCALED
        heads = self._heads()
        # An odd number of cache lines per column avoids conflicts of cache sets between columns.
        own.room = room
        is_full = room >= self.budget  # nothing is merged before
        padded = expansion.padded.py_func  # in Python
        slots = padded(self.budget + 1) + CACHE_LINE if is_full else padded(room + 1)
        sizes = {
            "columns": n_columns,
            "weight_rows": n_columns + 1,
            "metric": n_columns if self.metric == "learned" else 0,
            "classes": n_classes,
            "slots": slots,
            "words": -(-n_columns // 64),
            "heads": len(heads),
            "work": 4,
            "merged": expansion.MOST_MERGES if is_full else 0,
        }
        state = State(expansion.BSGD, sizes, parts={"rows": own, "calibration": calibration.of_sampled(n_classes)})
        state.bind(table=merging.table())
        state.maintain = maintenance.ENTRY_POINTS["maintain"].compile().address
        state.heads.weight[:] = 1.0 / len(heads)
        state.gamma_now = 1.0 if self.gamma is None else self.gamma
        state.gamma = self.gamma or 0.0
        self._set_params(state)
        return state

    def _entries(self) -> list[EntryPoint]:
        return [*super()._entries(), maintenance.ENTRY_POINTS["maintain"]]

    def _fit_settings(self, state: State) -> None:
        state.budget = self.budget
        maintain = maintenance.ENTRY_POINTS["maintain"].compile()
        while state.n_vectors > self.budget:
            maintain.ctypes(state.address)

    def _heads(self) -> tuple[tuple[str, float | None], ...]:
        """Return loss and step size of each head; members of ensembles have several."""
        return ((self.loss, self.learning_rate),)

    def _set_params(self, state: State) -> None:
        """Copy the settings to the state."""
        state.budget = self.budget
        state.n_heads = len(self._heads())
        state.l2 = self.l2
        state.horizon = self.horizon
        state.balanced = self.class_weight == "balanced"
        state.absorb = self.absorb
        state.metric_rate = METRIC_RATE if self.metric == "learned" else 0.0
        state.gamma_factor = self.gamma_factor
        state.merges = self.merges
        for head, (loss, rate) in zip(state.heads, self._heads(), strict=True):
            head.loss, head.rate = LOSSES[loss], rate or 0.0

    def _refresh(self, state: State) -> None:
        n, known, n_columns = int(state.n_vectors), int(state.n_known), len(state.vectors)
        if n > self.budget:
            raise ArchiveError(f"{n} support vectors do not fit a budget of {self.budget}")
        if known > n_columns:
            raise ArchiveError(f"{known} columns were learned, but the model has {n_columns}")
        mark_touched(state)
        vector_kernels.ENTRY_POINTS["update_all_squares"](state)

    def _take_vectors(self, vectors: Floats, coefs: Floats, biases: Floats) -> None:
        """Replace the support vectors and the coefficients of every head.

        The step counts become `horizon`.
        """
        state, (n, d), c = self._state, vectors.shape, len(biases)
        if c == 2:
            coefs, biases = coefs - coefs.mean(axis=0), biases - biases.mean()
        state.vectors[:], state.coefs[:] = 0.0, 0.0
        state.vectors[:d, :n] = vectors.T
        state.split("coefs")[:, :c, :n] = coefs
        state.split("biases")[:, :c] = biases
        state.heads.scale[:], state.heads.steps[:] = 1.0, self.horizon
        state.n_vectors, state.n_relearned = n, 0
        mark_touched(state)
        vector_kernels.ENTRY_POINTS["update_all_squares"](state)
        for b in range(n):
            state.norms[b] = vector_kernels.ENTRY_POINTS["vector_norm"](state, b)
