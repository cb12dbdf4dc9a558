"""Memory of an ensemble."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.core import losses
from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.state import State
from streamsvm.ensemble import blend, codes, combined_vote, label_baselines, notes, repeats
from streamsvm.ensemble import label_autocorrelation as autocorrelation
from streamsvm.ensemble import vote as kernels
from streamsvm.ensemble.delayed_votes import memory_size
from streamsvm.ensemble.members import KERNEL_COLUMNS, MEMBERS, Member, members_of
from streamsvm.features.rows import Floats
from streamsvm.features.scaler import UNLIMITED
from streamsvm.models import ArchiveError
from streamsvm.mutation import MutableParameter
from streamsvm.online import base
from streamsvm.online.batch import MINIBATCH, one_event
from streamsvm.online.calibration import GAIN_WINDOW, MEMORY, new_calibration
from streamsvm.online.memory import capacity_for
from streamsvm.online.saving import check_bounds, check_ranks
from streamsvm.online.scaling import new_rows
from streamsvm.parameters import check_number

# Maximum number of pairs and of scores in a block, unless one row needs more.
BLOCK_PAIRS, BLOCK_SCORES = 8_192, 65_536
# Ranks refer to this many recent values, one out of RANKS_SPACING.
RANKS_WINDOW, RANKS_SPACING = 250, 4
# Members and budget of each effort.
EFFORTS: dict[str, tuple[tuple[str, ...], int]] = {
    "low": (("standard", "linear", "naive-bayes"), 100),
    "normal": (("ranks", "standard-large", "linear", "trees", "forest", "naive-bayes"), 200),
    "high": (("standard", "ranks", "standard-large", "ranks-large", "linear", "trees", "forest", "naive-bayes"), 200),
}


class Ensemble(base.OnlineClassifier):
    """Base class with the state of an ensemble and of its members."""

    budget, vote_window = MutableParameter(), MutableParameter()
    effort: str
    members: tuple[str, ...] | None
    label_autocorrelation: bool

    def _members(self) -> tuple[str, ...]:
        return EFFORTS[self.effort][0] if self.members is None else self.members

    def _kinds(self) -> list[Member]:
        """Return the kind of each member."""
        budget = EFFORTS[self.effort][1] if self.budget is None else self.budget
        return [MEMBERS[name](budget) for name in self._members()]

    def _entries(self) -> list[EntryPoint]:
        members = {entry.name: entry for kind in self._kinds() for entry in kind.entries}
        return [*super()._entries(), *kernels.ENTRY_POINTS.values(), *members.values()]

    def _is_ranking(self) -> bool:
        return any(kind.on_ranks for kind in self._kinds())

    def _room_for(self, n: int) -> int:
        most = max(notes.NOTES, RANKS_WINDOW, repeats.FIRST_EVENTS, *(kind.most_events for kind in self._kinds()))
        return n if n < most else UNLIMITED

    def _n_held(self) -> int:
        labels = self._state.autocorrelation
        return max(self.n_events_learned, int(labels.n_learned), int(labels.oldest + labels.n_notes))

    def _new_state(self, n_columns: int, n_classes: int, *, room: int = UNLIMITED) -> State:
        kinds = self._kinds()
        n_heads = [len(kind.head_names) for kind in kinds]
        experts, ranking = sum(n_heads), self._is_ranking()
        members = {
            str(i): kind.new_state(n_columns, n_classes, new_rows(kind.n_columns(n_columns), None), room)
            for i, kind in enumerate(kinds, start=1)
        }
        rows = new_rows(n_columns, "standard")
        rows.room = room
        block = self._new_block(n_columns, n_classes, kinds, list(members.values()), room)
        has_codes = "linear" in self._members() and room >= codes.FIRST_EVENTS
        own = {
            "rows": rows,
            "ranks": new_rows(
                n_columns, "rank", RANKS_WINDOW if ranking else 0, RANKS_SPACING, stats_elsewhere=True, room=room
            ),
            "whole": one_event(rows.row, rows.all_rows),
            "listed": one_event(rows.row, rows.row_columns),
            "block": block,
            "codes": State(
                codes.CODES,
                {"code_columns": min(n_columns, codes.MOST_COLUMNS) if has_codes else 0, "words": codes.COUNT + 1},
            ),
            "combination": combined_vote.new_combination(experts, n_classes),
            "calibration": new_calibration(n_classes, MEMORY / blend.NOISE_SAMPLE, GAIN_WINDOW / blend.NOISE_SAMPLE),
            "repeats": repeats.new_repeats(n_classes, room),
            "autocorrelation": new_autocorrelation(n_classes, room if self.label_autocorrelation else 0),
        }
        sizes = {"block": len(block.rows), "experts": experts, "columns": n_columns, "classes": n_classes}
        sizes |= {"lanes": blend.padded.py_func(experts), "few": min(n_classes, losses.FEW)}
        state = State(blend.BLEND, sizes, parts=own | members)
        state.scale, state.vote = (
            kernels.ENTRY_POINTS[name].compile().address for name in ("scale_rows", "vote_on_rows")
        )
        state.is_ranking, state.uses_autocorrelation = ranking, self.label_autocorrelation
        state.expert_decay = 1.0 - 1.0 / self.vote_window
        state.experts.weight[:] = 1.0 / experts
        state.experts.inverse_temperature[:] = [s for kind in kinds for s in kind.inverse_temperature]
        return state

    def _new_block(self, n_columns: int, n_classes: int, kinds: list[Member], states: list[State], room: int) -> State:
        """Return memory for a block of rows, smaller for wide rows or many classes."""
        n_heads = [len(kind.head_names) for kind in kinds]
        most = max(min(blend.BLOCK, room, BLOCK_SCORES // (sum(n_heads) * max(n_classes, 1))), 1)
        sizes = {
            "block": most,
            "ways": 1 + any(kind.on_ranks for kind in kinds),
            "pairs": max(min(min(blend.BLOCK, room) * (n_columns + 1), BLOCK_PAIRS), n_columns + 1),
            "experts": sum(n_heads),
            "classes": n_classes,
            "members": len(kinds),
        }
        block = State(MINIBATCH, sizes)
        block.members.n_heads[:] = n_heads
        block.members.first[:] = np.cumsum([0, *n_heads[:-1]])
        for member, kind, state in zip(block.members, kinds, states, strict=True):
            member.way, member.state, member.run = kind.on_ranks, state.address, kind.entries[0].compile().address
        return block

    def _check_restored(self, state: State) -> None:
        check_ranks(state.ranks, state.rows)
        for kind, member in zip(self._kinds(), members_of(state), strict=True):
            kind.check_restored(member)
        labels = state.autocorrelation
        check_bounds("autocorrelation.made", labels.made, 0, labels.n_learned)
        table = state.repeats
        if abs(table.weights.sum() - 1.0) > 1e-6:
            raise ArchiveError("repeats.weights do not add up to 1")
        if int(table.n_buckets).bit_count() != 1:
            raise ArchiveError("repeats.n_buckets is not a power of 2")

    def _refresh(self, state: State) -> None:
        for kind, member in zip(self._kinds(), members_of(state), strict=True):
            if member.n_classes > state.n_classes:
                raise ArchiveError("a member knows other classes than the blend")
            kind.refresh(member)
        # Unused notes contain class 0, even if no class is known yet.
        labels = state.autocorrelation
        most = max(labels.counts.shape[1] - 1, 0)
        if any(codes.size and codes.max() > most for codes in (labels.recent, labels.noted, labels.history)):
            raise ArchiveError("label autocorrelation knows other classes than the blend")

    def _fit_settings(self, state: State) -> None:
        for kind, member in zip(self._kinds(), members_of(state), strict=True):
            kind.fit_settings(member)

    def memory_bytes(self, n_features: int | None = None, n_classes: int | None = None) -> int:
        """Return the maximum memory of a model, or without arguments its current memory.

        A new model takes about 35 kB and grows during the first 16,384 events. Later only new columns, classes, their
        names and labels take more memory.

        Parameters
        ----------
        n_features, n_classes
            Number of columns (one per category for strings) and of classes. None: the current capacity.

        Returns
        -------
        int
            Memory in bytes.

        Examples
        --------
        >>> from streamsvm import StreamSVMClassifier
        >>> StreamSVMClassifier().memory_bytes(n_features=20, n_classes=4) < 5.5e6
        True
        """
        columns, classes = self._capacity
        if n_features is not None:
            check_number("n_features", n_features, 1, whole=True)
            columns = max(min(16, self.max_features), min(capacity_for(n_features), self.max_features))
        if n_classes is not None:
            check_number("n_classes", n_classes, 1, whole=True)
            classes = max(2, capacity_for(n_classes))
        if n_features is None and n_classes is None:
            return self._state.n_bytes
        return self._new_state(columns, classes).n_bytes

    @property
    def noise(self) -> float:
        """Share of random labels that the probabilities allow for.

        Only the plain vote is corrected for noise, so this is the estimate times the share of the plain vote.
        """
        return float(self._state.combination.shares[combined_vote.PLAIN]) * super().noise

    @property
    def memory_size(self) -> int:
        """Number of integers stored per event to learn its label late."""
        return memory_size(len(self._state.experts))

    def _learn_packed(self, code: int) -> tuple[int, NDArray[np.float64]] | None:
        # Learning computes the vote first. This is not a prediction that label autocorrelation notes.
        proba = self._proba[: self._n_classes_view[()]]
        if not self._learn_current(code, 1.0):
            return None
        return int(proba.argmax()) if len(proba) else -1, proba

    def _run_batch(self, batch: State) -> int:
        return int(kernels.ENTRY_POINTS["run_rows"](self._state, batch))

    def _relevances(self) -> Floats | None:
        n = min(len(self._space), KERNEL_COLUMNS)
        total, thetas = 0.0, np.zeros(n)
        for _, member, vote in self._kernel_votes():
            thetas += (vote + 1e-12) * member.theta[:n]
            total += vote + 1e-12
        return None if total == 0.0 else np.exp(thetas / total)

    @property
    def relevance(self) -> dict[Any, float]:
        """Weight of each column in the kernel distances, by name, largest first.

        It is the geometric mean over the kernel members, weighted by their votes. Without kernel members it is empty.
        """
        values = self._relevances()
        return {} if values is None else self._by_relevance(values)

    def _shares_of_classes(self) -> dict[Any, float]:
        counts = self._state.frequencies[: len(self.labels.codes)]
        total = float(counts.sum())
        return {} if len(counts) > losses.FEW or not total else dict(zip(self.classes_, counts / total, strict=True))

    def _kernel_votes(self) -> list[tuple[Member, State, float]]:
        """Return the kernel members with their states and shares of the vote."""
        weights = iter(self._state.experts.weight.tolist())
        votes = [
            (kind, member, sum(next(weights) for _ in kind.head_names))
            for kind, member in zip(self._kinds(), members_of(self._state), strict=True)
        ]
        return [vote for vote in votes if vote[0].has_metric]


def new_autocorrelation(n_classes: int, room: int) -> State:
    """Create the state of label autocorrelation.

    `room` is the number of events, 0 if it is not used.
    """
    sizes = {"contexts": label_baselines.N_ROWS if room else 0, "notes": min(notes.NOTES, room), "classes": n_classes}
    return State(autocorrelation.AUTOCORRELATION, sizes)
