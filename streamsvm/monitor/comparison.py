"""Comparison of windows with references: alarms and states of columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.features.rows import Floats
from streamsvm.monitor import positions as pos
from streamsvm.monitor.alarms import ColumnState, FeatureAlarm, Hit
from streamsvm.monitor.bins import summary
from streamsvm.monitor.kernels import BLOCK
from streamsvm.monitor.profile import ColumnProfile, RelationProfile
from streamsvm.monitor.two_sample_tests import log_tail
from streamsvm.monitor.window_counts import ClosedWindows

if TYPE_CHECKING:
    from streamsvm.monitor.columns import Columns

N_TESTS = 2 * pos.N_CUTS + 7  # one-sided tests of a column
_VALUES, _MISSING, _TYPE = range(3)
_WATCHED = ("values", "missing", "type")
_POSITIONS = (slice(0, pos.MISSING), slice(pos.MISSING, pos.TYPE), slice(pos.TYPE, pos.TOTAL))
_GROUPS = np.array(pos.GROUPS)
_LEAST = 1e-300
_RECENT = 1024  # events of the window that `states` describes


def compare(
    columns: Columns, closed: Sequence[ClosedWindows], beyond: Sequence[NDArray[np.bool_]]
) -> list[FeatureAlarm]:
    """Return the alarms of columns for windows that closed.

    Parameters
    ----------
    columns
        The columns.
    closed, beyond
        Windows by scale, and which of their counts exceed the limits.
    """
    watches = columns.own.watches
    if not watches.is_changed.any() and not any(own.any() for own in beyond):
        return []
    deviates = [np.stack([own[:, :, part].any(axis=2) for part in _POSITIONS], axis=1) for own in beyond]
    for s, own in enumerate(deviates):
        for c in np.flatnonzero(own[:, _VALUES].any(axis=1)).tolist():
            _confirm(columns, closed[s], beyond[s][c], s, c)
            own[c, _VALUES] = beyond[s][c][:, : pos.MISSING].any(axis=1)
    hits = watches.update(deviates, closed)
    hits.sort(key=lambda hit: (closed[hit.scale].ends[hit.window], -hit.way))
    return [_alarm(columns, closed[hit.scale], beyond[hit.scale], hit) for hit in hits]


def _confirm(columns: Columns, windows: ClosedWindows, beyond: NDArray[np.bool_], s: int, c: int) -> None:
    """Remove deviations that only come from another share of missing values."""
    profile = columns.own.profiles[c]
    at = np.flatnonzero(beyond[:, : pos.MISSING].any(axis=1))
    counts = windows.counts[c, at]
    if profile.counts[pos.MISSING : pos.TYPE + 1].any() or counts[:, pos.MISSING : pos.TYPE + 1].any():
        log_p = _log_p(profile, counts, s, windows.n_blocks * BLOCK)
        beyond[at, : pos.MISSING] &= log_p[:, : pos.MISSING] <= columns.log_levels[s]


def _log_p(profile: ColumnProfile, counts: Floats, s: int, n_events: int) -> Floats:
    """Bound the log probabilities of counts of windows of scale s.

    Counts of values are taken among the values present.
    """
    own, whole = profile.design[s, _GROUPS[: pos.TOTAL]], profile.design[-1, _GROUPS[: pos.TOTAL]]
    absent, absent_before = (
        np.array(of[..., pos.MISSING] + of[..., pos.TYPE])[..., None] for of in (counts, profile.counts)
    )
    is_value = np.arange(pos.TOTAL) < pos.MISSING
    m, n = np.maximum(n_events - is_value * absent, 0.0), np.maximum(profile.n_events - is_value * absent_before, 1.0)
    k, r = np.minimum(counts[..., : pos.TOTAL], m), np.minimum(profile.counts[: pos.TOTAL], n)
    return log_tail(k / own, m / own, r / whole, n / whole)


def _alarm(columns: Columns, windows: ClosedWindows, beyond: NDArray[np.bool_], hit: Hit) -> FeatureAlarm:
    c, profile, counts = hit.row, columns.own.profiles[hit.row], windows.counts[hit.row, hit.window]
    n_events = windows.n_blocks * BLOCK
    log_p = _log_p(profile, counts, hit.scale, n_events)
    among = np.arange(pos.TOTAL)[_POSITIONS[hit.way]]
    among = among[beyond[c, hit.window, among]]
    kind = ("", "missing", "type")[hit.way] or _kind(profile, counts, n_events, among)
    end = int(windows.ends[hit.window]) * BLOCK
    return FeatureAlarm(
        profile.name,
        kind,
        end,
        end - n_events,
        summary(profile, profile.counts, profile.n_events, counts),
        summary(profile, counts, n_events, profile.counts),
        _evidence(float(log_p[among].min()), N_TESTS),
    )


def _kind(profile: ColumnProfile, counts: Floats, n_events: int, among: NDArray[np.int64]) -> str:
    """Name a change of values by the counts that deviate."""
    present = n_events - counts[pos.MISSING] - counts[pos.TYPE]
    outside = counts[pos.BELOW] + counts[pos.ABOVE]
    is_beyond = profile.kind == "number" and (pos.BELOW in among or pos.ABOVE in among)
    if is_beyond and outside > 0.5 * present:  # also if the values are equal, such as -999
        return "range"
    if pos.REPEATS in among and (
        counts[pos.REPEATS] > 0.9 * present or profile.counts[pos.REPEATS] < 0.05 * profile.n_events
    ):
        return "stuck"
    if profile.kind != "number":
        return "unseen" if pos.BELOW in among else "distribution"
    return "range" if is_beyond and not (among < pos.N_CUTS).any() else "distribution"


def _evidence(log_p: float, n_tests: int) -> float:
    return min(1.0, max(float(f"{math.exp(max(log_p, -690.0)) * n_tests:.3g}"), _LEAST))


def compare_relations(
    columns: Columns, closed: Sequence[ClosedWindows], beyond: Sequence[NDArray[np.bool_]]
) -> list[FeatureAlarm]:
    """Return the alarms of relations of columns.

    A relation has none while one of its columns has changed itself, or another relation of two of its columns.

    Parameters
    ----------
    columns
        The columns.
    closed, beyond
        As for `compare`.
    """
    watches, members = columns.related.watches, columns.relations >> 1
    if not watches.is_changed.any() and not any(own.any() for own in beyond):
        return []
    deviates = [own.swapaxes(1, 2).copy() for own in beyond]
    for c, raised, end in columns.own.watches.changes().tolist():
        relations = np.flatnonzero((members == c).any(axis=1))
        for own, windows in zip(deviates, closed, strict=True):
            own[relations] &= ~((windows.ends >= raised) & (windows.ends - windows.n_blocks < end))
    hits = watches.update(deviates, closed)
    changes = watches.changes()
    unexplained = []
    for hit in hits:
        at, used = int(closed[hit.scale].ends[hit.window]), members[hit.row][members[hit.row] >= 0]
        shared = np.isin(members[changes[:, 0]], used).sum(axis=1) >= 2
        earlier = (changes[:, 1] < at) | ((changes[:, 1] == at) & (changes[:, 0] < hit.row))
        if not (shared & earlier & (changes[:, 2] > at)).any():
            unexplained.append(hit)
    unexplained.sort(key=lambda hit: closed[hit.scale].ends[hit.window])
    return [_relation_alarm(columns, closed[hit.scale], hit) for hit in unexplained]


def _relation_alarm(columns: Columns, windows: ClosedWindows, hit: Hit) -> FeatureAlarm:
    profile, counts = columns.related.profiles[hit.row], windows.counts[hit.row, hit.window]
    n_events, end = windows.n_blocks * BLOCK, int(windows.ends[hit.window]) * BLOCK
    own, whole = profile.design[hit.scale], profile.design[-1]
    log_p = log_tail(counts / own, n_events / own, profile.counts / whole, profile.n_events / whole)
    shares = (profile.count / profile.n_events, float(counts[0]) / n_events)
    before, after = (_describe(columns, profile, share) for share in shares)
    evidence = _evidence(float(log_p[0]), 2)
    return FeatureAlarm(profile.columns, "relation", end, end - n_events, before, after, evidence)


def _describe(columns: Columns, relation: RelationProfile, share: float) -> dict[str, Any]:
    """Describe the share of events for which an odd number of conditions holds.

    For two medians, these are the events on opposite sides, which tell the correlation of normal variables.
    """
    if len(relation.columns) == 2 and not any(relation.middle):
        return {"correlation": round(math.cos(math.pi * share), 4), "opposite_sides": round(share, 4)}
    conditions = []
    for name, is_middle in zip(relation.columns, relation.middle, strict=True):
        profile = columns.own.profiles[columns.names[name]]
        low, high = (profile.cuts[i] for i in (profile.middle if is_middle else (profile.split, profile.split)))
        conditions.append(f"{low:.6g} < {name} <= {high:.6g}" if is_middle else f"{name} <= {high:.6g}")
    return {"odd_share": round(share, 4), "conditions": conditions}


# States ---------------------------------------------------------------------------------------------------------------


def states(columns: Columns) -> list[ColumnState]:
    """Return the state of every column."""
    return [_state(columns, name, c) for name, c in columns.names.items()]


def changed_relations(columns: Columns) -> list[tuple[Any, ...]]:
    """Return columns of relations that differ from the reference.

    Of relations that share two columns, the earliest is returned.
    """
    watches, members, found = columns.related.watches, columns.relations >> 1, list[tuple[Any, ...]]()
    now = np.flatnonzero(watches.is_changed)
    for p in now[np.argsort(watches.raised[now, 0], kind="stable")].tolist():
        profile = columns.related.profiles[p]
        used = members[p][members[p] >= 0].tolist()
        is_own = not columns.own.watches.is_changed[used].any()
        if profile is not None and is_own and all(len({*profile.columns} & {*other}) < 2 for other in found):
            found.append(profile.columns)
    return found


def _state(columns: Columns, name: Any, c: int) -> ColumnState:
    own, counts, n_events, s = columns.own, None, 0, 0
    profile, changed = own.profiles[c], own.watches.is_changed[c]
    first_block = own.learn_until[c] if profile is not None and profile.n_events else columns.block
    for scale, size in enumerate(columns.sizes):  # the largest window of at most `_RECENT` events after the reference
        fits = (columns.block * BLOCK // max(size // 4, BLOCK)) * max(size // 4, BLOCK) - size >= first_block * BLOCK
        if size <= _RECENT and fits:
            counts, n_events, s = own.last[scale, c], size, scale
    if profile is None or not profile.n_events:
        return ColumnState(name, "" if profile is None else profile.kind, "learning", {}, {})
    reference = summary(profile, profile.counts, profile.n_events, counts)
    status = "monitored" if profile.is_compared else "dependent"
    kinds = tuple(kind for kind, is_changed in zip(_WATCHED, changed, strict=True) if is_changed)
    begin = int(own.watches.since[c, changed].min()) * BLOCK if kinds else None
    if counts is None:
        return ColumnState(name, profile.kind, status, reference, {}, changed=kinds, since=begin)
    log_p = _log_p(profile, counts, s, n_events)
    tested = np.isfinite(own.high[s, c, : pos.TOTAL])
    least = float(log_p[tested].min(initial=0.0))
    recent = summary(profile, counts, n_events, profile.counts)
    before, after = _shares(profile, profile.counts, profile.n_events), _shares(profile, counts, n_events)
    moved = round(float(np.abs(after - before).sum()) / 2.0, 4)
    before, after = before + 0.5 / profile.n_events, after + 0.5 / n_events
    psi = round(float(((after - before) * np.log(after / before)).sum()), 4)
    evidence = _evidence(least, N_TESTS)
    return ColumnState(name, profile.kind, status, reference, recent, evidence, psi, moved, kinds, begin)


def _shares(profile: ColumnProfile, counts: Floats, n_events: int) -> Floats:
    """Return the shares of ten bins of numbers, or of the values."""
    if profile.kind != "number":
        return np.append(counts[: len(profile.values)], counts[[pos.BELOW, pos.ABOVE, pos.MISSING]]) / n_events
    levels = profile.counts[: pos.N_CUTS] / profile.n_events
    cuts = np.unique(np.searchsorted(levels, np.arange(1, 10) / 10).clip(0, pos.N_CUTS - 1))
    cumulative = np.concatenate([[0.0], counts[cuts], [n_events - counts[pos.MISSING]], [float(n_events)]])
    shares: Floats = np.diff(cumulative).clip(0.0) / n_events
    return shares
