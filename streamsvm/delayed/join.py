"""Stream join of events and labels: predict events on arrival, learn them when their labels arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from connectors.events import Features, LateLabels
from connectors.held import Coded, Texts
from streamsvm.decide.decisions import Decided, Decisions, Rows
from streamsvm.delayed import label_join as kernels
from streamsvm.delayed.rows import Packed, in_order, stacked, taken
from streamsvm.delayed.single import SingleRow
from streamsvm.delayed.slots import LEAVING
from streamsvm.delayed.store import Settled, Store
from streamsvm.features.rows import Floats, Ints

_NOTES = 2  # greatest number of values stored beside probabilities: decision and alarm
HOW = ("in time", "late", "timeout")
"""How an event got its label."""
IN_TIME, LATE, TIMEOUT = range(len(HOW))


@dataclass(slots=True)
class Asked:
    """Rows to predict or learn, in order.

    Parameters
    ----------
    features
        The rows.
    labels
        Class to learn each row as, None for rows that are only predicted.
    predicted
        Whether each row is predicted.
    times
        Event times, in milliseconds.
    memories, apart
        Arguments of `run_batch` of the learners.
    """

    features: Any
    labels: Sequence[Any]
    predicted: NDArray[np.bool_]
    times: Ints
    memories: Ints
    apart: Ints


@dataclass(slots=True)
class Answer:
    """Predictions of a model.

    Parameters
    ----------
    codes, scores
        Class numbers (-1 for none) and their probabilities.
    probas
        Probabilities of all classes if requested; NaN where unknown.
    slots
        Slots of pending events, -1 for events that are not stored; empty if unknown.
    decided
        Decisions about the events.
    """

    codes: Ints
    scores: Floats
    probas: Floats | None = None
    slots: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    decided: Decided = field(default_factory=Decided)


class Model(Protocol):
    """Interface of a model that the join uses."""

    @property
    def memory_size(self) -> int:
        """Number of values stored with an event for learning it later."""

    @property
    def tells_all(self) -> bool:
        """Whether probabilities of all classes are stored with events."""

    @property
    def classes(self) -> Sequence[Any]:
        """All classes so far; predicted codes index them."""

    @property
    def single(self) -> SingleRow | None:
        """Prediction and training of single events without a batch, if possible."""

    def run(self, asked: Asked) -> Answer:
        """Predict and learn rows in order."""


@dataclass(slots=True)
class Joined:
    """Matched events and labels, in order of matching.

    Parameters
    ----------
    labels
        The labels.
    slots
        Slot of each event, numbered by arrival.
    codes, scores
        Predictions of the events.
    keys, origins
        Keys and origins of the events; keys are empty unless requested.
    lags
        Label time minus event time, in milliseconds.
    how
        Index into `HOW`: in time, late, or timeout.
    after
        Number of events of the step that arrived before each match.
    held
        Stored probabilities and decisions if requested, as in `Decisions.packed`; empty if no longer stored.
    weights
        Cost weight of each label.
    """

    labels: Coded
    slots: Ints
    codes: Ints
    scores: Floats
    keys: list[str]
    origins: Ints
    lags: Ints
    how: Coded
    after: Ints
    held: list[Floats]
    weights: Floats

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def came(self) -> NDArray[np.bool_]:
        """Which labels arrived at all."""
        came: NDArray[np.bool_] = self.how.codes != TIMEOUT
        return came

    @classmethod
    def of(cls, parts: Sequence[Joined], n_origins: int) -> Joined:
        """Concatenate several."""
        if len(parts) == 1:
            return parts[0]
        none, places = np.zeros(0, np.int64), np.zeros((0, n_origins), np.int64)
        nobody = Coded(none, ()), none, none, np.zeros(0), list[str](), places, none, Coded(none, HOW)
        nothing = cls(*nobody, none, [], np.zeros(0))
        return cls(**{name: _together([getattr(part, name) for part in (nothing, *parts)]) for name in cls.__slots__})


def _together(columns: Sequence[Any]) -> Any:
    """Concatenate columns of one kind."""
    if isinstance(columns[0], Coded):
        return Coded.one_after_the_other(columns)
    return list(chain(*columns)) if isinstance(columns[0], list) else np.concatenate(columns)


@dataclass(slots=True)
class Events:
    """Arriving events.

    Parameters
    ----------
    features
        Rows of features.
    keys, times
        Key and time of each event; times in milliseconds since 1970.
    origins
        Numbers that identify the origin of each event, shape (n, k).
    """

    features: Features
    keys: Sequence[str]
    times: Ints
    origins: Ints

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(slots=True)
class Counts:
    """Counts of events and labels since the start.

    Parameters
    ----------
    labels
        Labels that arrived.
    answered
        Events that got their label in time.
    late
        Labels of expired events, which are not learned.
    repeated, corrected
        Further labels of events, equal to the first and different from it.
    doubles
        Events with the key of an earlier one: predicted, not stored.
    expired
        Events whose label did not arrive in time.
    """

    labels: int = 0
    answered: int = 0
    late: int = 0
    repeated: int = 0
    corrected: int = 0
    doubles: int = 0
    expired: int = 0


_NO_EVENTS = Events([], [], np.zeros(0, np.int64), np.zeros((0, 0), np.int64))
_NO_LABELS = LateLabels([], [], [], np.zeros(0, np.int64))

FATES = ("", "answered", "doubles", "answered", "", "late", "repeated", "corrected", "corrected")
"""Counter of each status of an event or label; empty for none."""

_FOUND = np.isin(np.arange(len(FATES)), (kernels.MEETS, kernels.JOINS, kernels.COMES_LATE))


class Join:
    """Predicts events on arrival, and learns each from its stored features when its label arrives.

    Parameters
    ----------
    store
        Store of pending events.
    model
        Model that predicts and learns.
    learn
        Whether to learn; False only predicts.
    on_timeout
        Class to learn for events whose label does not arrive in time; None for none.
    decisions
        Decisions about events. They are updated with labels in order of matching, from the probabilities at
        prediction time.

    Attributes
    ----------
    tells_keys
        Whether the keys of matched events are reported.
    """

    def __init__(
        self,
        store: Store,
        model: Model,
        *,
        learn: bool = True,
        on_timeout: Any = None,
        decisions: Decisions | None = None,
    ) -> None:
        self.store, self.model, self.learn, self.on_timeout = store, model, learn, on_timeout
        self.decisions = decisions or Decisions()
        self.counts, self.tells_keys = Counts(), True
        self._class_bytes, self._n_numbers = 8 * model.tells_all, model.memory_size + _NOTES * model.tells_all

    def totals(self) -> dict[str, int]:
        """Return all counts and the numbers of pending events and labels."""
        return asdict(self.counts) | self.store.counts

    # Single events ----------------------------------------------------------------------------------------------------

    def predict_one(self, x: Any, key: str, time: int) -> Answer:
        """Process a single event; return its prediction."""
        store, single, settled = self.store, self._single, None
        packed = store.segments.layouts.pack_one(x) if single is not None and type(x) is dict else None
        if single is not None and packed is not None:
            (layout, words), text = packed, key.encode("utf-8", "surrogatepass")
            size = len(words) + len(text) + 8 * self._n_numbers
            settled = store.settle_one(text, time, size=size, class_bytes=self._class_bytes)
            fate = int(settled.fates[0]) if self._is_single(settled) else kernels.MEETS
            if fate != kernels.MEETS and (found := single.run(x)) is not None:
                code, score, probas, memory = found
                if fate == kernels.WAITS:
                    slot = int(settled.slots[0])
                    store.segments.add_one(layout, words=words, keys=text, memories=memory, probas=probas.tobytes())
                    store.slots.put("codes", slot, code)
                    store.slots.put("scores", slot, score)
                self._count(settled)
                return Answer(np.array([code]), np.array([score]), probas)
        events = Events([x], [key], np.array([time]), np.zeros((1, 0), np.int64))
        answers, _ = self.step(events, _NO_LABELS, [], settled)
        return next(answer for answer in answers if len(answer.codes))

    def learn_one(self, label: Any, key: str, time: int) -> None:
        """Process a single label."""
        single, settled = self._single, None
        if single is not None:
            text, number = key.encode("utf-8", "surrogatepass"), self.store.number(label)
            settled = self.store.settle_one(text, time, number, class_bytes=self._class_bytes)
            if self._is_single(settled) and self._learned(single, settled, label):
                self.counts.labels += 1
                self._count(settled)
                return
        self.step(_NO_EVENTS, LateLabels([label], [], [time], np.zeros(1, np.int64)), [key], settled)

    @property
    def _single(self) -> SingleRow | None:
        """What runs single events; None if they are decided about or have origins."""
        is_plain = self.learn and not self.decisions and not self.store.n_origins and self.model.tells_all
        return self.model.single if is_plain else None

    def _is_single(self, settled: Settled) -> bool:
        """Whether an event or label is settled, and all that left has only to be counted."""
        left = settled.left
        return settled.end == 1 and (
            len(left) == 0
            or (len(left) < LEAVING and self.on_timeout is None and int(settled.slots[0]) not in left.tolist())
        )

    def _learned(self, single: SingleRow, settled: Settled, label: Any) -> bool:
        """Learn a label if a single row can; return whether it did or there was nothing to learn."""
        fate, slot, store = int(settled.fates[0]), int(settled.slots[0]), self.store
        if fate == kernels.COMES_EARLY:
            store.segments.add_one()
        elif fate == kernels.JOINS:
            row = store.segments.one(slot)
            if row is None or single.run(row[0], label, row[1]) is None:
                return False
            if not store.relearns:
                store.segments.let_one_go(slot)
        return fate != kernels.CORRECTS or not store.relearns

    def _count(self, settled: Settled) -> None:
        """Count the status of a single event or label, and free the slots that left."""
        if name := FATES[int(settled.fates[0])]:
            setattr(self.counts, name, getattr(self.counts, name) + 1)
        if len(settled.left):
            self.counts.expired += int(settled.expired.sum())
            self.store.segments.let_go(settled.left)

    # Batches ----------------------------------------------------------------------------------------------------------

    def step(
        self, events: Events, late: LateLabels, late_keys: Sequence[str], settled: Settled | None = None
    ) -> tuple[list[Answer], Joined]:
        """Process events and labels in order after settled ones; return predictions, in parts, and matches."""
        n, m, store, keys = len(events), len(late), self.store, Texts.of(events.keys)
        place = late.places_of_events(n)
        is_label = np.ones(n + m, bool)
        is_label[place] = False
        label_place = np.flatnonzero(is_label)
        digests, times = np.empty((n + m, 2), np.uint64), np.empty(n + m, np.int64)
        numbers = np.full(n + m, -1)
        digests[place], digests[label_place] = store.digests(keys), store.digests(late_keys)
        times[place], times[label_place] = events.times, np.asarray(late.times, np.int64)
        numbers[label_place] = store.numbers(late.labels)
        self.counts.labels += m
        # Whether an event may match an early label; a settled one is early no longer.
        may_meet = n and (m or store.slots.ledger.n_early or settled is not None)
        known = store.labels if may_meet else ()
        answers, joined = [], []
        rows = store.segments.pack(events.features, n)
        batch = _Batch.of(events, rows, keys, late, late_keys, known, self.on_timeout)
        sizes = np.zeros(n + m, np.int64)
        sizes[place] = store.sizes(rows, keys, self._n_numbers)
        for found in store.settle(digests, times, numbers, sizes, self._class_bytes, settled):
            part = _Part(self, found, batch)
            answers.append(part.run())
            joined.append(part.report())
        store.trim()
        return answers, Joined.of(joined, store.n_origins)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Events and labels of one step.

    Parameters
    ----------
    events, rows, keys, late_keys
        Events, their packed rows, and keys of events and labels.
    of_event, of_label
        Index of the event, or of the label, at each position; -1 for the other kind.
    codes
        Codes of arriving labels, among `values`.
    values
        Possible labels of events: arriving labels, None, the label of a timeout, and earlier labels.
    n_came
        Number of `values` that arrive in this step.
    """

    events: Events
    rows: Packed
    keys: Texts
    late_keys: Sequence[str]
    of_event: Ints
    of_label: Ints
    codes: Ints
    values: list[Any]
    n_came: int

    @classmethod
    def of(
        cls,
        events: Events,
        rows: Packed,
        keys: Texts,
        late: LateLabels,
        late_keys: Sequence[str],
        known: Sequence[Any],
        on_timeout: Any,
    ) -> _Batch:
        n, m, came = len(events), len(late), Coded.of(late.labels)
        of_event, of_label = np.full(n + m, -1), np.full(n + m, -1)
        of_event[late.places_of_events(n)] = np.arange(n)
        of_label[of_event < 0] = np.arange(m)
        values = [*came.values, None, on_timeout, *known]
        return cls(events, rows, keys, late_keys, of_event, of_label, came.codes, values, len(came.values))


class _Part:
    """Consecutive events and labels with the statuses that the store found."""

    def __init__(self, join: Join, settled: Settled, batch: _Batch) -> None:
        self._join, self._store, self._settled, self._batch = join, join.store, settled, batch
        part = slice(settled.first, settled.end)
        self._of_event, self._of_label = batch.of_event[part], batch.of_label[part]
        fates, slots = settled.fates, settled.slots
        self._left_before = settled.left_before - settled.first
        self._asks = self._of_event >= 0
        self._new = self._asks & (fates != kernels.DOUBLE)
        early = fates == kernels.COMES_EARLY
        self._first_new = int(slots[self._new | early].min(initial=np.iinfo(np.int64).max))
        self._n_new = int((self._new | early).sum())
        self._at_once = self._find_at_once()
        self._fused = self._at_once if self._store.relearns else self._at_once | (fates == kernels.MEETS)

    def _find_at_once(self) -> NDArray[np.bool_]:
        """Find events directly followed by their label, which are predicted and learned in one step."""
        fates, slots, left = self._settled.fates, self._settled.slots, self._left_before
        found = np.zeros(len(fates), bool)
        if not self._store.relearns:
            found[:-1] = (fates[:-1] == kernels.WAITS) & (fates[1:] == kernels.JOINS) & (slots[1:] == slots[:-1])
            found[left[(left > 0) & (left <= len(fates))] - 1] = False
        return found

    def run(self) -> Answer:
        """Run the model, store pending events, and return the answers for the events."""
        self._add()
        asked, is_event = self._asked()
        answer = self._join.model.run(asked)
        codes, scores = answer.codes[is_event], answer.scores[is_event]
        probas = None if answer.probas is None else answer.probas[is_event]
        self._found = self._find()
        self._held, self._weights, decided = list[Floats](), np.ones(len(self._found.slots)), Decided()
        kept = np.zeros((len(codes), 0))
        if probas is not None:
            kept, decided = self._decide(probas)
        self._keep(asked, codes, scores, kept)
        slots = np.where(self._new, self._settled.slots, -1)[self._asks]
        return Answer(codes, scores, probas, slots, decided)

    def _decide(self, probas: Floats) -> tuple[Floats, Decided]:
        """Decide about the events, and return what to store with each until its label arrives."""
        decisions, own = self._join.decisions, self._find_own()
        self._held = self._earlier(own)
        decided = self._in_turn(probas, own) if decisions else Decided()
        kept = decisions.packed(probas, decided)
        for i in np.flatnonzero(own >= 0).tolist():
            self._held[i] = kept[own[i]]
        return kept, decided

    def _find_own(self) -> Ints:
        """Return the row of each match among the events of this part, -1 for earlier or late ones."""
        slots = np.where(self._new, self._settled.slots, -1)[self._asks]
        place = {slot: row for row, slot in enumerate(slots.tolist()) if slot >= 0}
        own = np.array([place.get(slot, -1) for slot in self._found.slots.tolist()], np.int64)
        own[self._found.is_late] = -1
        return own

    def _earlier(self, own: Ints) -> list[Floats]:
        """Return the stored probabilities of earlier events, empty for expired ones."""
        slots, held = self._found.slots, [np.zeros(0)] * len(own)
        which = np.flatnonzero((own < 0) & ~self._found.is_late)
        for i, row in zip(which.tolist(), self._store.segments.part("probas", slots[which]), strict=True):
            held[i] = row
        return held

    def _in_turn(self, probas: Floats, own: Ints) -> Decided:
        """Decide about the events, updating with labels in order of matching."""
        found, join, classes = self._found, self._join, self._join.model.classes
        n, m, k = len(probas), len(own), probas.shape[1]
        rows = np.zeros((n + m, len(classes)))
        rows[:n, :k] = probas
        rows[n:] = np.where(own[:, None] >= 0, rows[own], join.decisions.unpacked(self._held, len(classes))[0])
        order = np.argsort(np.concatenate([2 * np.flatnonzero(self._asks), found.turns]), kind="stable")
        labels = [*[None] * n, *found.labels]
        followed = np.concatenate([np.zeros(n, np.bool_), ~found.is_late & join.learn])[order]
        in_turn = Rows(np.nan_to_num(rows[order]), [labels[i] for i in order.tolist()], order < n, followed)
        decided = join.decisions.run(in_turn, classes).part(np.argsort(order))
        self._weights = self._weights if decided.weights is None else decided.weights[n:]
        return decided.part(slice(n)).of_first(k)

    def _add(self) -> None:
        """Store new events whose labels do not follow directly."""
        settled, batch = self._settled, self._batch
        self._kept = self._new & ~self._fused
        if self._n_new:
            which = self._of_event[self._kept]
            rows, keys = batch.rows.take(which), batch.keys.take(which)
            self._store.segments.add(self._n_new, self._new_numbers(), rows, keys)
            self._store.slots.put("origins", settled.slots[self._new], batch.events.origins[self._of_event[self._new]])

    def _new_numbers(self) -> Ints:
        """Return the indices of stored events among the new slots."""
        numbers: Ints = self._settled.slots[self._kept] - self._first_new
        return numbers

    def _asked(self) -> tuple[Asked, NDArray[np.bool_]]:
        """Return rows for the model in order: events to predict, and stored events to learn."""
        settled, store, join, events = self._settled, self._store, self._join, self._batch.events
        asks, learns = np.flatnonzero(self._asks), np.flatnonzero(self._find_learned())
        left = np.flatnonzero(settled.expired) if join.learn and join.on_timeout is not None else learns[:0]
        late_slots = np.concatenate([settled.slots[learns], settled.left[left]])
        # At one position, expired events come first.
        order = np.argsort(np.concatenate([2 * asks + 1, 2 * learns + 1, 2 * self._left_before[left]]), kind="stable")
        labels = np.full(len(asks), self._batch.n_came)
        if join.learn:
            fused = self._fused[asks]
            labels[fused] = self._codes(asks[fused])
        labels = np.concatenate([labels, self._codes(learns), np.full(len(left), self._batch.n_came + 1)])
        memories, apart = self._memories(asks, late_slots)
        rows = [
            (taken(events.features, self._of_event[asks]), len(asks)),
            (store.segments.rows(late_slots), len(late_slots)),
        ]
        times = np.concatenate([events.times[self._of_event[asks]], store.slots.column("times", late_slots)])
        is_event = order < len(asks)
        in_turn = Coded(labels[order], self._batch.values)
        features = in_order(stacked(rows), order)
        return Asked(features, in_turn, is_event, times[order], memories, apart[order]), is_event

    def _find_learned(self) -> NDArray[np.bool_]:
        """Find the positions that learn an event predicted earlier."""
        fates = self._settled.fates
        if not self._join.learn:
            return np.zeros(len(fates), bool)
        learned: NDArray[np.bool_] = (fates == kernels.JOINS) | ((fates == kernels.MEETS) & ~self._fused)
        learned[1:] &= ~self._at_once[:-1]
        if self._store.relearns:
            learned |= fates == kernels.CORRECTS
        return learned

    def _codes(self, ops: Ints) -> Ints:
        """Return codes of the labels at the given positions."""
        at = np.where(self._at_once[ops], ops + 1, ops)
        came, found = self._of_label[at], self._batch.n_came + 2 + self._settled.labels[at]
        given = came >= 0
        found[given] = self._batch.codes[came[given]]
        return found

    def _memories(self, event_ops: Ints, late_slots: Ints) -> tuple[Ints, Ints]:
        """Return the memories of new slots, learned slots and events without a slot, with the index of each row."""
        size, n_new = self._join.model.memory_size, self._n_new
        old = np.flatnonzero(late_slots < self._first_new) if n_new else np.arange(len(late_slots))
        memories = np.zeros((n_new + len(old) + 1, size), np.int64)
        if size:
            memories[n_new:-1] = self._store.segments.memories(late_slots[old], size)
        slots = self._settled.slots[event_ops]
        of_events = np.where(self._new[event_ops], 1 + slots - self._first_new, len(memories))
        of_events[self._fused[event_ops] & self._join.learn] = 0
        of_late = 1 + late_slots - self._first_new
        of_late[old] = 1 + n_new + np.arange(len(old))
        return memories, np.concatenate([of_events, of_late])

    def _keep(self, asked: Asked, codes: Ints, scores: Floats, kept: Floats) -> None:
        """Store predictions and decisions of pending events."""
        store, settled = self._store, self._settled
        new = self._new[self._asks]
        for name, values in (("codes", codes), ("scores", scores)):
            store.slots.put(name, settled.slots[self._new], values[new])
        if self._n_new:
            at = self._new_numbers()
            store.segments.remember(self._n_new, at, asked.memories[at], kept[self._kept[self._asks]])

    def _find(self) -> _Found:
        """Return the matches, in order."""
        store, settled, join = self._store, self._settled, self._join
        fates, slots, expired = settled.fates, settled.slots, settled.expired
        ops = np.flatnonzero(_FOUND[fates])
        keys = self._keys(ops) if join.tells_keys else []
        labels, how = self._codes(ops), np.where(fates[ops] == kernels.COMES_LATE, LATE, IN_TIME)
        turns, joining, lags = 2 * ops + 1, slots[ops], settled.lags[ops]
        if join.on_timeout is not None and expired.any():
            left = settled.left[expired]
            n = len(left)
            turns = np.concatenate([turns, 2 * self._left_before[expired]])
            order = np.argsort(turns, kind="stable")
            turns, joining = turns[order], np.concatenate([joining, left])[order]
            lags = np.concatenate([lags, np.full(n, int(store.slots.ledger.wait))])[order]
            labels = np.concatenate([labels, np.full(n, self._batch.n_came + 1)])[order]
            how = np.concatenate([how, np.full(n, TIMEOUT)])[order]
            if join.tells_keys:
                keys += store.keys(left)
                keys = [keys[i] for i in order.tolist()]
        return _Found(turns, joining, lags, Coded(labels, self._batch.values), Coded(how, HOW), keys)

    def _keys(self, ops: Ints) -> list[str]:
        """Return the keys of the events or labels at the given positions."""
        return [
            self._batch.events.keys[event] if event >= 0 else self._batch.late_keys[label]
            for event, label in zip(self._of_event[ops].tolist(), self._of_label[ops].tolist(), strict=True)
        ]

    def report(self) -> Joined:
        """Report the matches, count statuses, and free stored rows."""
        store, settled, counts, found = self._store, self._settled, self._join.counts, self._found
        fates, joining = settled.fates, found.slots
        n = np.bincount(fates, minlength=len(FATES)).tolist()
        for fate, name in enumerate(FATES):
            if name:
                setattr(counts, name, getattr(counts, name) + n[fate])
        counts.expired += int(settled.expired.sum())
        codes, scores, origins = (store.slots.column(name, joining) for name in ("codes", "scores", "origins"))
        codes = codes.astype(np.int64)
        done = settled.slots[fates == kernels.JOINS] if not store.relearns else settled.slots[:0]
        store.segments.let_go(np.concatenate([done, settled.left]))
        n_before = int((self._batch.of_event[: settled.first] >= 0).sum())
        after = n_before + np.searchsorted(2 * np.flatnonzero(self._asks), found.turns)
        places = found.keys, origins, found.lags, found.how, after
        return Joined(found.labels, joining, codes, scores, *places, self._held, self._weights)


@dataclass(frozen=True, slots=True)
class _Found:
    """Matches within a part, in order.

    Parameters
    ----------
    turns
        Position in half steps: even before, odd at an event or label.
    slots, lags
        Slots of the events and lags of their labels.
    labels, how, keys
        As in `Joined`.
    """

    turns: Ints
    slots: Ints
    lags: Ints
    labels: Coded
    how: Coded
    keys: list[str]

    @property
    def is_late(self) -> NDArray[np.bool_]:
        """Which events had expired."""
        late: NDArray[np.bool_] = self.how.codes == LATE
        return late
