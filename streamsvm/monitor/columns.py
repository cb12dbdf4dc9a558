"""Columns that learn their references and are compared with them by window."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streamsvm.features.rows import Floats, Ints
from streamsvm.models.archive import decode_label, encode_label
from streamsvm.models.codec import SavedState, Stateful, nested, part_of
from streamsvm.monitor import positions as pos
from streamsvm.monitor.alarms import FeatureAlarm
from streamsvm.monitor.bins import (
    Bins,
    Texts,
    choose_relations,
    count_blocks,
    count_odd,
    fit_bins,
    shape_of,
    with_reference,
)
from streamsvm.monitor.cells import Cells, cells_state, join_cells, restored_cells
from streamsvm.monitor.comparison import N_TESTS, compare, compare_relations
from streamsvm.monitor.kernels import BLOCK
from streamsvm.monitor.profile import ColumnProfile, Profile, RelationProfile
from streamsvm.monitor.window_counts import WindowCounts, window_sizes
from streamsvm.names import shown

logger = logging.getLogger("streamsvm")
_FIRST_BLOCKS = 32  # blocks whose values choose the bins, at most half of the reference


class Columns(Stateful):
    """State of all columns.

    Parameters
    ----------
    n_events
        Length of a reference, a multiple of `BLOCK`.
    relearns
        Whether a column learns a new reference after an alarm.
    false_alarms
        Expected number of false alarms per event, over all tests.
    seed
        Seed of the choice of relations.
    """

    saved = ("previous", "n_budgeted", "own", "relations", "related")
    signed = frozenset({"previous"})

    def __init__(self, n_events: int, relearns: bool, false_alarms: float, seed: int) -> None:
        self.n_blocks, self.relearns = n_events // BLOCK, relearns
        self.n_first = min(_FIRST_BLOCKS, self.n_blocks // 2)
        self.false_alarms, self.seed = false_alarms, seed
        self.sizes = window_sizes(n_events)
        self.names: dict[Any, int] = {}
        self.bins = Bins()
        self.first: dict[int, Cells] = {}  # the values so far of columns whose bins are not chosen yet
        self.previous = np.zeros(0)
        self.own = WindowCounts(self.sizes, pos.GROUPS, 3, ColumnProfile)
        self.relations = np.zeros((0, 3), np.int64)  # rows of words, -1 for none
        self.related = WindowCounts(self.sizes, (0,), 1, RelationProfile)
        self.n_budgeted = 0  # columns among which the rate of false alarms is divided

    def __len__(self) -> int:
        return len(self.names)

    @property
    def block(self) -> int:
        """Number of blocks so far."""
        return self.own.n_blocks

    def add(self, names: Iterable[Any]) -> None:
        """Add columns, which begin to learn their references."""
        for name in names:
            c = self.names[name] = len(self.names)
            self.bins.put(c, None)
            self.first[c] = Cells(np.zeros(0))
        k = len(self.names) - len(self.previous)
        self.previous = np.concatenate([self.previous, np.full(k, np.nan)])
        self.own.add_rows(k)

    def take_profile(self, profile: Profile) -> None:
        """Add the columns of a profile, with their references."""
        self.add(column.name for column in profile.columns)
        self.first = {}
        for c, column in enumerate(profile.columns):
            self.bins.put(c, column)
        self.own.use(profile.columns)
        found = [
            [2 * self.names[name] + is_middle for name, is_middle in zip(one.columns, one.middle, strict=True)]
            for one in profile.relations
        ]
        self.add_relations(np.array([[*bits, -1][:3] for bits in found], np.int64).reshape(-1, 3))
        self.related.use(profile.relations)
        self._set_limits(range(len(self)), range(len(self.relations)))

    def profile(self) -> Profile:
        """Return the references, or those of the events so far if none is complete."""
        known = tuple(self.own.known(range(len(self))).values())
        if not known:
            return self._profile_so_far()
        names, related = {column.name for column in known}, self.related.known(range(len(self.relations)))
        relations = (one for one in related.values() if names.issuperset(one.columns))
        return Profile(self.n_blocks * BLOCK, known, tuple(relations))

    def _profile_so_far(self) -> Profile:
        """Return the distributions of the events so far, as if the reference ended here."""
        n_events = self.block * BLOCK
        n_scales = len(window_sizes(n_events))
        known = [(c, profile) for c, profile in enumerate(self.own.profiles) if profile is not None]
        columns = [with_reference(profile, *self.own.reference(c, n_scales)) for c, profile in known]
        begun = np.flatnonzero(self.related.learn_from < self.block).tolist()
        return Profile(n_events, tuple(columns), tuple(self._relation(p, n_scales) for p in begun))

    def _relation(self, p: int, n_scales: int | None = None) -> RelationProfile:
        """Return the reference of a relation."""
        names, bits = list(self.names), [bit for bit in self.relations[p].tolist() if bit >= 0]
        n_events, counts, design = self.related.reference(p, n_scales)
        own = tuple(names[bit // 2] for bit in bits)
        return RelationProfile(own, tuple(bool(bit % 2) for bit in bits), n_events, float(counts[0]), design)

    # Blocks -----------------------------------------------------------------------------------------------------------

    def add_blocks(self, numbers: Floats, texts: Mapping[int, Texts]) -> list[FeatureAlarm]:
        """Take whole blocks of all columns; return alarms.

        Parameters
        ----------
        numbers
            Shape (n_columns, n), NaN for missing values and texts.
        texts
            Texts by column.
        """
        alarms: list[FeatureAlarm] = []
        at, n = 0, numbers.shape[1]
        while at < n:
            end = min(n, at + (self._next_boundary() - self.block) * BLOCK)
            part = {c: own[at:end] for c, own in texts.items()}
            found, k = self._take_part(numbers[:, at:end], part)
            self._part_taken(numbers[:, at : at + k], {c: own[:k] for c, own in part.items()})
            alarms += found
            at += k
        return alarms

    def _part_taken(self, numbers: Floats, texts: Mapping[int, Texts]) -> None:
        """Act after blocks were taken."""

    def _next_boundary(self) -> int:
        firsts = [self.block + self.n_first - len(cells.numbers) // BLOCK for cells in self.first.values()]
        return min([self.own.next_boundary(), self.related.next_boundary(), *firsts])

    def _take_part(self, numbers: Floats, texts: Mapping[int, Texts]) -> tuple[list[FeatureAlarm], int]:
        """Take blocks in which no column changes its phase.

        Returns alarms and the number of events taken.
        """
        counts, words = count_blocks(self.bins, numbers, texts, self.previous)
        closing, of_relations = self.own.close(counts), self.related.close(count_odd(words, self.relations))
        alarms: list[FeatureAlarm] = []
        is_changed = self.own.watches.is_changed.any() or self.related.watches.is_changed.any()
        if is_changed or closing.exceeds or of_relations.exceeds:
            beyond, relation_beyond = self.own.beyond(closing), self.related.beyond(of_relations)
            closed, relation_closed = closing.windows, of_relations.windows
            if self.relearns:
                pairs = zip([*closed, *relation_closed], [*beyond, *relation_beyond], strict=True)
                ends = np.concatenate([windows.ends[found.any(axis=(0, 2))] for windows, found in pairs])
                n = (int(ends.min(initial=1 << 40)) - self.block) * BLOCK
                if n < numbers.shape[1]:
                    return self._take_part(numbers[:, :n], {c: part[:n] for c, part in texts.items()})
            alarms = compare(self, closed, beyond) + compare_relations(self, relation_closed, relation_beyond)
            alarms.sort(key=lambda alarm: alarm.event)
            self._add_examples(alarms, numbers, texts)
        self.own.commit(closing)
        self.related.commit(of_relations)
        self.previous = numbers[:, -1].copy()
        for c, cells in self.first.items():
            self.first[c] = join_cells(cells, Cells(numbers[c], texts.get(c)))
        self._switch_references()
        if self.relearns:
            self._relearn(alarms)
        return alarms, numbers.shape[1]

    def _add_examples(self, alarms: Sequence[FeatureAlarm], numbers: Floats, texts: Mapping[int, Texts]) -> None:
        """Add examples of unseen values, or of another type, to their alarms."""
        for alarm in alarms:
            if alarm.kind not in ("unseen", "type"):
                continue
            c, end = self.names[alarm.column], alarm.event - self.block * BLOCK
            own, codes = texts.get(c), self.bins.codes.get(c)
            block, is_time = [] if own is None else own[end - BLOCK : end].tolist(), c in self.bins.times
            found = [text for text in block if text is not None]
            values = [text for text in found if (shape_of(text) if is_time else text) not in (codes or ())]
            if alarm.kind == "type" and codes is not None:
                numeric = [value for value in numbers[c, end - BLOCK : end].tolist() if value == value]
                values = (values if is_time else []) + numeric
            alarm.after["examples"] = list(dict.fromkeys(shown(v) if isinstance(v, str) else v for v in values))[:3]

    # Phases of references ---------------------------------------------------------------------------------------------

    def _switch_references(self) -> None:
        """Begin and end references at the current block."""
        fitted = [c for c, cells in self.first.items() if len(cells.numbers) == self.n_first * BLOCK]
        for c in fitted:
            self._fit(c)
        if fitted:
            self._begin_relations()
        ended = np.flatnonzero(self.own.learn_until == self.block).tolist()
        for c in ended:
            profile = self.own.profiles[c] = with_reference(self.own.profiles[c], *self.own.reference(c))
            # The first values came after the events that chose the bins.
            if profile.kind == "empty" and profile.counts[pos.MISSING] < profile.n_events:
                self._restart_reference(c)
        ended_relations = np.flatnonzero(self.related.learn_until == self.block).tolist()
        for p in ended_relations:
            self.related.profiles[p] = self._relation(p)
        if ended or ended_relations:
            self._set_limits(ended, ended_relations)

    def _fit(self, c: int) -> None:
        """Choose the bins of a column from its first values; begin its reference."""
        (numbers, texts), name = self.first.pop(c), list(self.names)[c]
        profile = self.own.profiles[c] = fit_bins(name, numbers, texts)
        if profile.kind == "empty" and self.block == self.n_first:
            logger.warning("the monitored column %r has no values in its first %d events", name, len(numbers))
        self.bins.put(c, profile)
        self.own.begin(c, self.block, self.n_blocks - self.n_first)
        if profile.kind == "number":  # counts of the values that chose a category would be too large
            own = {} if texts is None else {0: texts}
            bins = Bins()
            bins.put(0, profile)
            counts, _ = count_blocks(bins, numbers[None], own, np.full(1, np.nan))
            self.own.learn_row(c, counts[:, 0])

    def _begin_relations(self) -> None:
        """Choose relations once, and begin references of those whose columns have bins."""
        found = [(c, profile) for c, profile in enumerate(self.own.profiles) if profile is not None]
        splits = [c for c, profile in found if profile.split >= 0]
        middles = {c for c, profile in found if profile.middle[0] >= 0}
        if not len(self.relations):
            self.add_relations(choose_relations(splits, middles, self.seed))
        known = {-1, *(2 * c for c in splits), *(2 * c + 1 for c in middles)}
        for p, bits in enumerate(self.relations.tolist()):
            if self.related.learn_from[p] > self.block and known.issuperset(bits):
                self.related.begin(p, self.block, self.n_blocks - self.n_first)

    def add_relations(self, relations: Ints) -> None:
        """Add the relations of columns, once."""
        self.relations, self.related.n_blocks = relations, self.block
        self.related.add_rows(len(relations))

    def _relearn(self, alarms: Sequence[FeatureAlarm]) -> None:
        """Restart the references of columns with an alarm."""
        again = np.flatnonzero(self.related.watches.is_changed).tolist()
        for alarm in alarms:
            if alarm.kind == "relation":
                continue
            c = self.names[alarm.column]
            self._restart_reference(c)
            self.related.forget(self._relations_of([c]))
        for p in again:
            if self.related.profiles[p] is not None:
                self.related.begin(p, self.block, self.n_blocks)
                self.related.watches.clear(p)

    def _restart_reference(self, c: int) -> None:
        """Restart the reference of a column."""
        self.own.forget([c])
        self.bins.put(c, None)
        self.first[c] = Cells(np.zeros(0))

    def _relations_of(self, columns: Sequence[int]) -> list[int]:
        """Return the relations of some columns."""
        relations: list[int] = np.flatnonzero(np.isin(self.relations >> 1, columns).any(axis=1)).tolist()
        return relations

    def _set_limits(self, columns: Iterable[int], relations: Iterable[int]) -> None:
        if len(self) > self.n_budgeted:
            self.n_budgeted = len(self) if not self.n_budgeted else 2 * len(self)
            columns, relations = range(len(self)), range(len(self.relations))
        known = self.own.known(columns)
        self.own.set_limits({c: _with_unseen(profile) for c, profile in known.items()}, self.log_levels)
        low, high = self.own.low, self.own.high
        for c, profile in known.items():
            low[:, c, pos.BELOW : pos.REPEATS + 1] = low[:, c, pos.TOTAL] = -math.inf
            high[:, c, pos.TOTAL] = math.inf
            if profile.kind == "empty":  # values of any type raise one alarm, because fewer are missing
                high[:, c, pos.TYPE] = math.inf
            if profile.kind == "category":  # the events that chose the values had these
                high[:, c, [i for i in range(pos.N_CUTS) if not profile.counts[i]]] = math.inf
            if not profile.is_stationary:
                low[:, c, : pos.REPEATS], high[:, c, : pos.REPEATS] = -math.inf, math.inf
        self.related.set_limits(self.related.known(relations), self.log_levels)
        profiles = enumerate(self.own.profiles)
        dependent = [c for c, profile in profiles if profile is not None and not profile.is_stationary]
        self.related.accept_all(self._relations_of(dependent))

    @property
    def log_levels(self) -> list[float]:
        """Return the log level of a test by scale, given tests per quarter window."""
        n_tests = len(self.sizes) * (N_TESTS * self.n_budgeted + 2 * len(self.relations))
        steps = [self.sizes[0], *self.sizes[:-1]]
        return [math.log(min(self.false_alarms * step / n_tests, 0.01)) for step in steps]

    # Saving -----------------------------------------------------------------------------------------------------------

    def state(self) -> SavedState:
        """Return the state as a JSON header and arrays."""
        header, arrays = super().state()
        first, values = nested({"first": cells_state({str(c): cells for c, cells in self.first.items()})})
        return header | first | {"names": [encode_label(name) for name in self.names]}, arrays | values

    def restore(self, state: SavedState) -> None:
        """Restore the result of `state` in a new object."""
        self.names = {decode_label(name): c for c, name in enumerate(state[0]["names"])}
        self.first = {int(c): cells for c, cells in restored_cells(part_of(state, "first")).items()}
        super().restore(state)
        for c, profile in enumerate(self.own.profiles):
            self.bins.put(c, profile)

    def is_valid(self) -> bool:
        """Return whether the restored values fit together."""
        first = self.first.values()
        return (
            len(self.names) == len(self.previous) == len(self.own)
            and len(self.relations) == len(self.related)
            and bool(((self.relations >= -1) & (self.relations < 2 * len(self))).all())
            and self.own.n_blocks == self.related.n_blocks
            and set(self.first) <= set(range(len(self)))
            and all(len(cells.numbers) in range(0, self.n_first * BLOCK, BLOCK) for cells in first)
        )


def _with_unseen(profile: ColumnProfile) -> ColumnProfile:
    """Return a profile whose rare values of a category include unseen ones.

    The first events have no unseen values, because they choose the values, but as many more rare ones.
    """
    if profile.kind != "category":
        return profile
    counts = profile.counts.copy()
    counts[pos.OTHER] += counts[pos.UNSEEN]
    return replace(profile, counts=counts)
