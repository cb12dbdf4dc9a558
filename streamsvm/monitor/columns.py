"""Columns that learn their references and are compared with them by window."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streamsvm.features.rows import Floats, Ints
from streamsvm.monitor import positions as pos
from streamsvm.monitor.alarms import FeatureAlarm, Watches
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
from streamsvm.monitor.cells import join_cells
from streamsvm.monitor.comparison import N_TESTS, compare, compare_relations
from streamsvm.monitor.kernels import BLOCK
from streamsvm.monitor.profile import ColumnProfile, Profile, RelationProfile
from streamsvm.monitor.window_counts import WindowCounts, window_sizes
from streamsvm.names import shown

logger = logging.getLogger("streamsvm")
_FIRST_BLOCKS = 32  # blocks whose values choose the bins, at most half of the reference


class Columns:
    """State of all columns.

    Parameters
    ----------
    n_events
        Length of a reference, a multiple of `BLOCK`.
    relearns
        Whether a column learns its reference anew after an alarm.
    false_alarms
        Expected number of false alarms per event, over all tests.
    seed
        Seed of the choice of relations.
    """

    def __init__(self, n_events: int, relearns: bool, false_alarms: float, seed: int) -> None:
        self.n_blocks, self.relearns = n_events // BLOCK, relearns
        self.n_first = min(_FIRST_BLOCKS, self.n_blocks // 2)
        self.false_alarms, self.seed = false_alarms, seed
        self.sizes = window_sizes(n_events)
        self.profiles: list[ColumnProfile | None] = []
        self.names: dict[Any, int] = {}
        self.bins = Bins()
        self.first: dict[int, list[tuple[Floats, Texts | None]]] = {}  # the first values of a reference
        self.first_from: dict[int, int] = {}  # and the block at which they begin
        self.previous = np.zeros(0)
        self.tally = WindowCounts(self.sizes, pos.GROUPS)
        self.watches = Watches()
        self.relations = np.zeros((0, 3), np.int64)  # rows of words, -1 for none
        self.relation_profiles: list[RelationProfile | None] = []
        self.relation_tally = WindowCounts(self.sizes, (0,))
        self.relation_watches = Watches()
        self.n_budgeted = 0  # columns among which the rate of false alarms is divided

    def __len__(self) -> int:
        return len(self.names)

    @property
    def block(self) -> int:
        """Number of blocks so far."""
        return self.tally.n_blocks

    def add(self, names: Iterable[Any]) -> None:
        """Add columns, which begin to learn their references."""
        for name in names:
            c = self.names[name] = len(self.names)
            self.profiles.append(None)
            self.bins.put(c, None)
            self.first[c], self.first_from[c] = [], self.block
        k = len(self.names) - len(self.previous)
        if k:
            self.previous = np.concatenate([self.previous, np.full(k, np.nan)])
            self.tally.add_rows(k)
            self.watches.add(3 * k)

    def take_profile(self, profile: Profile) -> None:
        """Add the columns of a profile, with their references."""
        self.add(column.name for column in profile.columns)
        self.first, self.first_from = {}, {}
        self.profiles = list(profile.columns)
        for c, column in enumerate(profile.columns):
            self.bins.put(c, column)
        self.tally.learn_from[:] = self.tally.learn_until[:] = self.block
        found = [
            [2 * self.names[name] + is_middle for name, is_middle in zip(one.columns, one.middle, strict=True)]
            for one in profile.relations
        ]
        self.add_relations(np.array([[*bits, -1][:3] for bits in found], np.int64).reshape(-1, 3))
        self.relation_profiles = list(profile.relations)
        self.relation_tally.learn_from[:] = self.relation_tally.learn_until[:] = self.block
        self._set_limits(range(len(self)), range(len(self.relations)))

    def profile(self) -> Profile:
        """Return the references, or those of the events so far if none is complete."""
        known = tuple(p for p in self.profiles if p is not None and p.n_events)
        if not known:
            return self._profile_so_far()
        names = {column.name for column in known}
        relations = (one for one in self.relation_profiles if one is not None and names.issuperset(one.columns))
        return Profile(self.n_blocks * BLOCK, known, tuple(relations))

    def _profile_so_far(self) -> Profile:
        """Return the distributions of the events so far, as if the reference ended here."""
        n_events = self.block * BLOCK
        n_scales = len(window_sizes(n_events))
        known = [(c, profile) for c, profile in enumerate(self.profiles) if profile is not None]
        columns = [with_reference(profile, *self.tally.reference(c, n_scales)) for c, profile in known]
        begun = np.flatnonzero(self.relation_tally.learn_from < self.block).tolist()
        return Profile(n_events, tuple(columns), tuple(self._relation(p, n_scales) for p in begun))

    def _relation(self, p: int, n_scales: int | None = None) -> RelationProfile:
        """Return the reference of a relation."""
        names, bits = list(self.names), [bit for bit in self.relations[p].tolist() if bit >= 0]
        n_events, counts, design = self.relation_tally.reference(p, n_scales)
        own = tuple(names[bit // 2] for bit in bits)
        return RelationProfile(own, tuple(bool(bit % 2) for bit in bits), n_events, float(counts[0]), design)

    # Blocks -----------------------------------------------------------------------------------------------------------

    def take(self, numbers: Floats, texts: Mapping[int, Texts]) -> list[FeatureAlarm]:
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
            alarms += found
            at += k
        return alarms

    def _next_boundary(self) -> int:
        firsts = [at + self.n_first for at in self.first_from.values()]
        return min([self.tally.next_boundary(), self.relation_tally.next_boundary(), *firsts])

    def _take_part(self, numbers: Floats, texts: Mapping[int, Texts]) -> tuple[list[FeatureAlarm], int]:
        """Take blocks in which no column changes its phase.

        Returns alarms and the number of events taken.
        """
        counts, words = count_blocks(self.bins, numbers, texts, self.previous)
        closing, of_relations = self.tally.close(counts), self.relation_tally.close(count_odd(words, self.relations))
        alarms: list[FeatureAlarm] = []
        is_changed = self.watches.is_changed.any() or self.relation_watches.is_changed.any()
        if is_changed or closing.exceeds or of_relations.exceeds:
            beyond = self.tally.beyond(closing)
            relation_beyond = [found[:, :, 0] for found in self.relation_tally.beyond(of_relations)]
            closed, relation_closed = closing.windows, of_relations.windows
            if self.relearns:
                flags = [found.any(axis=(0, 2)) for found in beyond] + [found.any(axis=0) for found in relation_beyond]
                ends = np.concatenate([w.ends[own] for w, own in zip([*closed, *relation_closed], flags, strict=True)])
                n = (int(ends.min(initial=1 << 40)) - self.block) * BLOCK
                if n < numbers.shape[1]:
                    return self._take_part(numbers[:, :n], {c: part[:n] for c, part in texts.items()})
            alarms = compare(self, closed, beyond) + compare_relations(self, relation_closed, relation_beyond)
            alarms.sort(key=lambda alarm: alarm.event)
            self._add_examples(alarms, numbers, texts)
        self.tally.commit(closing)
        self.relation_tally.commit(of_relations)
        self.previous = numbers[:, -1].copy()
        for c, kept in self.first.items():
            kept.append((numbers[c].copy(), texts.get(c)))
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
        fitted = [c for c, at in self.first_from.items() if at + self.n_first == self.block]
        for c in fitted:
            self._fit(c)
        if fitted:
            self._begin_relations()
        ended = np.flatnonzero(self.tally.learn_until == self.block).tolist()
        for c in ended:
            profile = self.profiles[c]
            assert profile is not None
            profile = self.profiles[c] = with_reference(profile, *self.tally.reference(c))
            # The first values came after the events that chose the bins.
            if profile.kind == "empty" and profile.counts[pos.MISSING] < profile.n_events:
                self._learn_anew(c)
        ended_relations = np.flatnonzero(self.relation_tally.learn_until == self.block).tolist()
        for p in ended_relations:
            self.relation_profiles[p] = self._relation(p)
        if ended or ended_relations:
            self._set_limits(ended, ended_relations)

    def _fit(self, c: int) -> None:
        """Choose the bins of a column from its first values; begin its reference."""
        kept, name = self.first[c], list(self.names)[c]
        numbers, texts = join_cells(kept)
        profile = fit_bins(name, numbers, texts)
        if profile.kind == "empty" and not self.first_from[c]:
            logger.warning("the monitored column %r has no values in its first %d events", name, len(numbers))
        del self.first[c], self.first_from[c]
        self.profiles[c] = profile
        self.bins.put(c, profile)
        self.tally.begin(c, self.block, self.n_blocks - self.n_first)
        if profile.kind == "number":  # counts of the values that chose a category would be too large
            own = {} if texts is None else {0: texts}
            bins = Bins()
            bins.put(0, profile)
            counts, _ = count_blocks(bins, numbers[None], own, np.full(1, np.nan))
            self.tally.learn_row(c, counts[:, 0])

    def _begin_relations(self) -> None:
        """Choose relations once, and begin references of those whose columns have bins."""
        found = [(c, profile) for c, profile in enumerate(self.profiles) if profile is not None]
        splits = [c for c, profile in found if profile.split >= 0]
        middles = {c for c, profile in found if profile.middle[0] >= 0}
        if not len(self.relations):
            self.add_relations(choose_relations(splits, middles, self.seed))
        known = {-1, *(2 * c for c in splits), *(2 * c + 1 for c in middles)}
        for p, bits in enumerate(self.relations.tolist()):
            if self.relation_tally.learn_from[p] > self.block and known.issuperset(bits):
                self.relation_tally.begin(p, self.block, self.n_blocks - self.n_first)

    def add_relations(self, relations: Ints) -> None:
        """Add the relations of columns, once."""
        self.relations = relations
        if len(relations):
            self.relation_profiles = [None] * len(relations)
            self.relation_tally.n_blocks = self.block
            self.relation_tally.add_rows(len(relations))
            self.relation_watches.add(len(relations))

    def _relearn(self, alarms: Sequence[FeatureAlarm]) -> None:
        """Begin the references of columns with an alarm anew."""
        again = np.flatnonzero(self.relation_watches.is_changed).tolist()
        for alarm in alarms:
            if alarm.kind == "relation":
                continue
            c = self.names[alarm.column]
            self._learn_anew(c)
            self.watches.clear(slice(3 * c, 3 * c + 3))
            self._forget_relations(np.flatnonzero((self.relations >> 1 == c).any(axis=1)))
        for p in again:
            if self.relation_profiles[p] is not None:
                self.relation_tally.begin(p, self.block, self.n_blocks)
                self.relation_watches.clear(p)

    def _learn_anew(self, c: int) -> None:
        """Begin the reference of a column anew."""
        self.profiles[c] = None
        self.bins.put(c, None)
        self.first[c], self.first_from[c] = [], self.block
        self.tally.learn_from[c] = self.tally.learn_until[c] = 1 << 60
        self.tally.accept_all(c)

    def _forget_relations(self, relations: Ints) -> None:
        """Forget the references of relations until their columns have bins."""
        self.relation_tally.learn_from[relations] = self.relation_tally.learn_until[relations] = 1 << 60
        self.relation_tally.accept_all(relations)
        self.relation_watches.clear(relations)
        for p in relations.tolist():
            self.relation_profiles[p] = None

    def _set_limits(self, columns: Iterable[int], relations: Iterable[int]) -> None:
        if len(self) > self.n_budgeted:
            self.n_budgeted = len(self) if not self.n_budgeted else 2 * len(self)
            columns, relations = range(len(self)), range(len(self.relations))
        known = {c: profile for c in columns if (profile := self.profiles[c]) is not None and profile.n_events}
        self.tally.set_limits(list(known), list(map(_with_unseen, known.values())), self.log_levels)
        low, high = self.tally.low, self.tally.high
        for c, profile in known.items():
            low[:, c, pos.BELOW : pos.REPEATS + 1] = low[:, c, pos.TOTAL] = -math.inf
            high[:, c, pos.TOTAL] = math.inf
            if profile.kind == "empty":  # values of any type raise one alarm, because fewer are missing
                high[:, c, pos.TYPE] = math.inf
            if profile.kind == "category":  # the events that chose the values had these
                high[:, c, [i for i in range(pos.N_CUTS) if not profile.counts[i]]] = math.inf
            if not profile.is_stationary:
                low[:, c, : pos.REPEATS], high[:, c, : pos.REPEATS] = -math.inf, math.inf
        related = {p: one for p in relations if (one := self.relation_profiles[p]) is not None}
        self.relation_tally.set_limits(list(related), list(related.values()), self.log_levels)
        dependent = [c for c, profile in enumerate(self.profiles) if profile is not None and not profile.is_stationary]
        if dependent:
            self.relation_tally.accept_all(np.flatnonzero(np.isin(self.relations >> 1, dependent).any(axis=1)))

    @property
    def log_levels(self) -> list[float]:
        """Return the log level of a test by scale, given tests per quarter window."""
        n_tests = len(self.sizes) * (N_TESTS * self.n_budgeted + 2 * len(self.relations))
        steps = [self.sizes[0], *self.sizes[:-1]]
        return [math.log(min(self.false_alarms * step / n_tests, 0.01)) for step in steps]


def _with_unseen(profile: ColumnProfile) -> ColumnProfile:
    """Return a profile whose rare values of a category include unseen ones.

    The first events have no unseen values, because they choose the values, but as many more rare ones.
    """
    if profile.kind != "category":
        return profile
    counts = profile.counts.copy()
    counts[pos.OTHER] += counts[pos.UNSEEN]
    return replace(profile, counts=counts)
