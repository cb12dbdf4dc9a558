"""Columns of a stream: they learn their references, and are compared with them window by window."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from streamsvm.monitor.alarms import FeatureAlarm, Watches
from streamsvm.monitor.bins import (
    Bins,
    Ints,
    Texts,
    count_blocks,
    count_opposite,
    fit_bins,
    with_reference,
)
from streamsvm.monitor.bounds import Floats
from streamsvm.monitor.comparison import N_TESTS, compare, compare_pairs
from streamsvm.monitor.profile import BELOW, GROUPS, REPEATS, TOTAL, ColumnProfile, PairProfile, Profile
from streamsvm.monitor.reading import join_cells
from streamsvm.monitor.tally import BLOCK, Tally, window_sizes
from streamsvm.names import shown

MOST_PAIRS = 256
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
        Seed of the choice of pairs.
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
        self.tally = Tally(self.sizes, GROUPS)
        self.watches = Watches()
        self.pairs = np.zeros((0, 2), np.int64)
        self.pair_profiles: list[PairProfile | None] = []
        self.pair_tally = Tally(self.sizes, (0,))
        self.pair_watches = Watches()
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
        index = self.names
        pairs = np.array([[index[a], index[b]] for a, b in (pair.columns for pair in profile.pairs)], np.int64)
        self.add_pairs(pairs.reshape(-1, 2))
        self.pair_profiles = list(profile.pairs)
        self.pair_tally.learn_from[:] = self.pair_tally.learn_until[:] = self.block
        self._set_limits(range(len(self)), range(len(self.pairs)))

    def profile(self) -> Profile:
        """Return the references; before the first one is complete, those of the events so far."""
        known = tuple(p for p in self.profiles if p is not None and p.n_events)
        if not known:
            return self._profile_so_far()
        names = {column.name for column in known}
        pairs = (pair for pair in self.pair_profiles if pair is not None and names.issuperset(pair.columns))
        return Profile(self.n_blocks * BLOCK, known, tuple(pairs))

    def _profile_so_far(self) -> Profile:
        """Return the distributions of the events so far, as if the reference ended here."""
        n_events = self.block * BLOCK
        n_scales = len(window_sizes(n_events))
        known = [(c, profile) for c, profile in enumerate(self.profiles) if profile is not None]
        columns = [with_reference(profile, *self.tally.reference(c, n_scales)) for c, profile in known]
        names, pairs = list(self.names), []
        for p in np.flatnonzero(self.pair_tally.learn_from < self.block).tolist():
            n, counts, design = self.pair_tally.reference(p, n_scales)
            i, j = self.pairs[p]
            pairs.append(PairProfile((names[i], names[j]), n, float(counts[0]), design))
        return Profile(n_events, tuple(columns), tuple(pairs))

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
        return min([self.tally.next_boundary(), self.pair_tally.next_boundary(), *firsts])

    def _take_part(self, numbers: Floats, texts: Mapping[int, Texts]) -> tuple[list[FeatureAlarm], int]:
        """Take blocks during which no column changes its phase; return alarms and the number of events taken."""
        counts, words = count_blocks(self.bins, numbers, texts, self.previous)
        closed, children = self.tally.close(counts)
        beyond = [self.tally.beyond(windows, s) for s, windows in enumerate(closed)]
        pair_closed, pair_children = self.pair_tally.close(count_opposite(words, self.pairs))
        pair_beyond = [self.pair_tally.beyond(windows, s)[:, :, 0] for s, windows in enumerate(pair_closed)]
        if self.relearns:
            flags = [found.any(axis=(0, 2)) for found in beyond] + [found.any(axis=0) for found in pair_beyond]
            ends = np.concatenate([w.ends[own] for w, own in zip([*closed, *pair_closed], flags, strict=True)])
            n = (int(ends.min(initial=1 << 40)) - self.block) * BLOCK
            if n < numbers.shape[1]:
                return self._take_part(numbers[:, :n], {c: part[:n] for c, part in texts.items()})
        alarms = compare(self, closed, beyond) + compare_pairs(self, pair_closed, pair_beyond)
        alarms.sort(key=lambda alarm: alarm.event)
        self._add_examples(alarms, numbers, texts)
        self.tally.commit(closed, children)
        self.pair_tally.commit(pair_closed, pair_children)
        self.previous = numbers[:, -1].copy()
        for c, kept in self.first.items():
            kept.append((numbers[c].copy(), texts.get(c)))
        self._turn()
        if self.relearns:
            self._relearn(alarms)
        return alarms, numbers.shape[1]

    def _add_examples(self, alarms: Sequence[FeatureAlarm], numbers: Floats, texts: Mapping[int, Texts]) -> None:
        """Add the first values in the last block of a window that are unseen, or of another type."""
        for alarm in alarms:
            if alarm.kind not in ("unseen", "type"):
                continue
            c, end = self.names[alarm.column], alarm.event - self.block * BLOCK
            own, codes = texts.get(c), self.bins.codes.get(c)
            if alarm.kind == "type" and codes is not None:
                values = [value for value in numbers[c, end - BLOCK : end].tolist() if value == value]
            else:
                block = [] if own is None else own[end - BLOCK : end].tolist()
                values = [text for text in block if text is not None and text not in (codes or ())]
            alarm.after["examples"] = list(dict.fromkeys(shown(v) if isinstance(v, str) else v for v in values))[:3]

    # Phases of references ---------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Begin and end references at the current block."""
        fitted = [c for c, at in self.first_from.items() if at + self.n_first == self.block]
        for c in fitted:
            self._fit(c)
        if fitted:
            self._begin_pairs()
        ended = np.flatnonzero(self.tally.learn_until == self.block).tolist()
        for c in ended:
            profile = self.profiles[c]
            assert profile is not None
            self.profiles[c] = with_reference(profile, *self.tally.reference(c))
        ended_pairs = np.flatnonzero(self.pair_tally.learn_until == self.block).tolist()
        for p in ended_pairs:
            i, j = self.pairs[p]
            n_events, counts, design = self.pair_tally.reference(p)
            names = list(self.names)
            self.pair_profiles[p] = PairProfile((names[i], names[j]), n_events, float(counts[0]), design)
        if ended or ended_pairs:
            self._set_limits(ended, ended_pairs)

    def _fit(self, c: int) -> None:
        """Choose the bins of a column from its first values, and begin to count its reference."""
        kept, name = self.first[c], list(self.names)[c]
        numbers, texts = join_cells(kept)
        profile = fit_bins(name, numbers, texts)
        if profile is None:
            if not self.first_from[c]:
                logger.warning("the monitored column %r has no values in its first %d events", name, len(numbers))
            self.first[c], self.first_from[c] = [], self.block
            return
        del self.first[c], self.first_from[c]
        self.profiles[c] = profile
        self.bins.put(c, profile)
        self.tally.begin(c, self.block, self.n_blocks - self.n_first)
        if profile.kind == "number":  # counts of the values that chose a category would be too large
            own = {} if texts is None else {0: texts}
            bins = Bins()
            bins.put(0, profile)
            counts, _ = count_blocks(bins, numbers[None], own, np.full(1, np.nan))
            self.tally.learn_row(c, counts[0])

    def _begin_pairs(self) -> None:
        """Choose pairs once, and begin the references of pairs whose columns have bins."""
        splits = [c for c, profile in enumerate(self.profiles) if profile is not None and profile.split >= 0]
        if not len(self.pairs):
            pairs = np.array(list(combinations(splits[:1000], 2)), np.int64).reshape(-1, 2)
            if len(pairs) > MOST_PAIRS:
                chosen = np.random.default_rng(self.seed).choice(len(pairs), MOST_PAIRS, replace=False)
                pairs = pairs[np.sort(chosen)]
            self.add_pairs(pairs)
        for p, (i, j) in enumerate(self.pairs.tolist()):
            if self.pair_tally.learn_from[p] > self.block and i in splits and j in splits:
                self.pair_tally.begin(p, self.block, self.n_blocks - self.n_first)

    def add_pairs(self, pairs: Ints) -> None:
        """Add the pairs of columns, once."""
        self.pairs = pairs
        if len(pairs):
            self.pair_profiles = [None] * len(pairs)
            self.pair_tally.n_blocks = self.block
            self.pair_tally.add_rows(len(pairs))
            self.pair_watches.add(len(pairs))

    def _relearn(self, alarms: Sequence[FeatureAlarm]) -> None:
        """Begin the references of columns with an alarm anew."""
        index = {pair: p for p, pair in enumerate(map(tuple, self.pairs.tolist()))}
        again = set()
        for alarm in alarms:
            if alarm.kind == "relation":
                again.add(index[self.names[alarm.column[0]], self.names[alarm.column[1]]])
                continue
            c = self.names[alarm.column]
            self.profiles[c] = None
            self.bins.put(c, None)
            self.first[c], self.first_from[c] = [], self.block
            self.tally.learn_from[c] = self.tally.learn_until[c] = 1 << 60
            self.tally.accept_all(c)
            self.watches.clear(slice(3 * c, 3 * c + 3))
            for p in np.flatnonzero((self.pairs == c).any(axis=1)).tolist():
                self.pair_tally.learn_from[p] = self.pair_tally.learn_until[p] = 1 << 60
                self.pair_tally.accept_all(p)
                self.pair_profiles[p] = None
                self.pair_watches.clear(p)
        for p in again:
            if self.pair_profiles[p] is not None:
                self.pair_tally.begin(p, self.block, self.n_blocks)
                self.pair_watches.clear(p)

    def _set_limits(self, columns: Iterable[int], pairs: Iterable[int]) -> None:
        if len(self) > self.n_budgeted:
            self.n_budgeted = len(self) if not self.n_budgeted else 2 * len(self)
            columns, pairs = range(len(self)), range(len(self.pairs))
        levels = self.log_levels
        known = [c for c in columns if (profile := self.profiles[c]) is not None and profile.n_events]
        profiles = [profile for c in known if (profile := self.profiles[c]) is not None]
        self.tally.set_limits(known, profiles, levels)
        fixed = [c for c, profile in zip(known, profiles, strict=True) if not profile.is_stationary]
        for c in known:
            self.tally.high[:, c, TOTAL], self.tally.low[:, c, BELOW : REPEATS + 1] = math.inf, -math.inf
            self.tally.low[:, c, TOTAL] = -math.inf
        self.tally.low[:, fixed, :REPEATS], self.tally.high[:, fixed, :REPEATS] = -math.inf, math.inf
        known_pairs = [p for p in pairs if self.pair_profiles[p] is not None]
        pair_profiles = [pair for p in known_pairs if (pair := self.pair_profiles[p]) is not None]
        self.pair_tally.set_limits(known_pairs, pair_profiles, levels)
        dependent = [c for c, profile in enumerate(self.profiles) if profile is not None and not profile.is_stationary]
        if dependent:
            self.pair_tally.accept_all(np.flatnonzero(np.isin(self.pairs, dependent).any(axis=1)))

    @property
    def log_levels(self) -> list[float]:
        """Return the logarithm of the level of a test by scale; every test repeats after a quarter of its window."""
        n_tests = len(self.sizes) * (N_TESTS * self.n_budgeted + 2 * len(self.pairs))
        steps = [self.sizes[0], *self.sizes[:-1]]
        return [math.log(min(self.false_alarms * step / n_tests, 0.01)) for step in steps]
