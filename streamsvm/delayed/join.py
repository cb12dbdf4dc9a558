"""Stream join of events and labels: predict on arrival, learn with the label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.strings import CategoricalColumn
from connectors.events import LateLabels
from streamsvm.decide.conformal import ConformalSets
from streamsvm.decide.decisions import Decided, DecisionRows, Decisions
from streamsvm.delayed import label_join as kernels
from streamsvm.delayed.label_join import EVENT, IN_TIME, KIND, LATE, NO_LABEL, SLOT, TIMEOUT
from streamsvm.delayed.protocol import OUTCOMES, Arrivals, Matches
from streamsvm.delayed.single import SingleRow
from streamsvm.delayed.single_join import LAYOUT, NOT_TAKEN, NOTES, NOW
from streamsvm.delayed.store import Store
from streamsvm.delayed.stored_features import OWN, Packed, PaddedKeys, in_order, stacked
from streamsvm.delayed.timeline import Timeline
from streamsvm.features.rows import Floats, Ints
from streamsvm.features.values import encoding_error
from streamsvm.online.adapters import BatchAdapter, EventAdapter, ModelRows, Predictions

_NOTES = 2  # greatest number of values stored beside probabilities: decision and alarm
_OUTCOME_OF = {IN_TIME: 0, LATE: 1, TIMEOUT: 2}
_NO_TIMES = np.zeros(0, np.int64)
_NO_KEYS = PaddedKeys.of([])
_NO_EVENTS = Arrivals([], [], _NO_TIMES, np.zeros((0, 2), np.int64))
_LABEL = np.zeros(1, np.bool_)
_LEAVING = (TIMEOUT, kernels.DROPPED)


class Join:
    """Predicts events on arrival, and learns their stored features with labels.

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
    with_keys
        Whether the keys of matched events are reported.
    single
        The last prediction of a single event; None if all events are processed in batches.
    decided
        Decision about the last single event.
    """

    def __init__(
        self,
        store: Store,
        model: BatchAdapter | EventAdapter,
        *,
        learn: bool = True,
        on_timeout: Any = None,
        decisions: Decisions | None = None,
    ) -> None:
        self.store, self.model, self.learn, self.on_timeout = store, model, learn, on_timeout
        self.decisions, self.with_keys = decisions or Decisions(), True
        self._size = model.memory_size
        self._row = SingleRow.of(model.model) if model.stores_proba else None
        self.single = model if isinstance(model, EventAdapter) else self._row
        if not learn or self.decisions.alarms is not None:
            self.single = self._row = None
        self.decided, self._decides, self._n_notes = Decided(), bool(self.decisions), self.decisions.n_notes
        self._of_sets = Decided()  # of single events, decided by compiled code
        self._names: tuple[Any, ...] = ()
        self._layout = OWN  # of single events with these names
        bytes_of = {
            "event_bytes": 8 * (self._size + _NOTES * model.stores_proba),
            "class_bytes": 8 * model.stores_proba,
        }
        store.configure(**bytes_of, learns_timeouts=learn and on_timeout is not None)

    def use_sets(self, sets: ConformalSets) -> None:
        """Predict these sets from now on."""
        self.decisions.sets, self._decides = sets, True

    # Single events ----------------------------------------------------------------------------------------------------

    def predict_one(self, x: Any, key: str, time: int) -> bool:
        """Process a single event without the cost of a batch, if possible.

        Its prediction is in `single`.

        Parameters
        ----------
        x, key, time
            The event; time NOW for the newest time so far.

        Returns
        -------
        bool
            False if the event needs `step`: then nothing has changed.
        """
        single, text = self._row, _encoded(key)
        if single is None and (self.single is None or self._decides):
            return False
        if single is not None and (row := single.pack(x)) is not None and self._layout_of(single) >= 0:
            decide = self._decide_one if self._n_notes else None
            if self._decides:
                single.use_sets(self._sets())
            kind = self.store.predict_one(single, row, text, time, decide)
            if kind > 1:
                self._free(self.store.table.journal)
            if kind >= 0:
                if self._decides and not self._n_notes:
                    self.decided = self._of_sets
                return True
        return self._predict_one(x, text, time) or (self.expire(time, x) and self._predict_one(x, text, time))

    def _predict_one(self, x: Any, text: bytes, time: int) -> bool:
        """Process a single event by calls of store and learner, if no other expires."""
        single, store = self.single, self.store
        if single is None or not store.is_simple(text, time) or (found := single.predict(x)) is None:
            return False
        if self._row is not None and self._decides:
            found = self._decide_one(self._row)
        layout, row = store.pack_one(x)
        if store.add_one(text, time, x, row, found, (layout, single.code[0], single.score[0])) > 1:
            self._free(store.table.journal)
        return True

    def _sets(self) -> int:
        """Return the address of prediction sets for compiled code, 0 for none.

        With costs, there are none. The address changes with the number of classes.
        """
        return 0 if self.decisions.sets is None or self._n_notes else self.decisions.sets.memory.address

    def _layout_of(self, single: SingleRow) -> int:
        """Return the layout of the learner's names."""
        if single.names is not self._names:
            self._names, self._layout = single.names, self.store.layouts.number(single.names, True)
            single.binding[LAYOUT], single.binding[NOTES] = self._layout, self._n_notes > 0
            self._of_sets = Decided(single.members)
        return self._layout

    def label_one(self, label: Any, key: str, time: int) -> bool:
        """Process a single label; return False and change nothing if it needs `step`.

        Parameters
        ----------
        label, key, time
            The label; time NOW for the newest time so far.
        """
        store, text = self.store, _encoded(key)
        if self._row is None and (self.single is None or self._decides):
            return False
        code = store.labels[label]
        kind = store.label_one(text, time, code)
        if kind == NOT_TAKEN and self.expire(time):
            kind = store.label_one(text, time, code)
        if kind == NOT_TAKEN:
            return False
        if kind == IN_TIME:
            *about, n_entries = store.table.found.tolist()
            try:
                needs_batch = not self._learn_stored(label, *about)
            except Exception:  # foreign models may raise anything
                self._free(store.table.journal)
                raise
        else:
            n_entries = store.table.n_entries[()]
            needs_batch = (kind == kernels.CORRECTED and store.relearns) or (kind == LATE and self._decides)
        if needs_batch:
            self._run(_NO_EVENTS, store.pack([], 0), _NO_KEYS, [key], _LABEL, store.table.journal)
        elif n_entries > 1:
            self._free(store.table.journal)
        elif kind == IN_TIME and not store.relearns:
            store.free_one(about[0], about[-1])
        return True

    def _learn_stored(
        self, label: Any, slot: int, layout: int, start: int, n_row: int, n_key: int, n_words: int
    ) -> bool:
        """Learn a stored event; return False and change nothing if it needs a batch."""
        single, store = self.single, self.store
        if not n_words or single is None or (self._row is None and self._decides):
            return False
        data, n = store.segments.all[store.segments.number(slot)].data, 8 * n_row
        held = bytes(data[8 * start : 8 * (start + n_words)])
        if self._row is not None and layout == self._layout >= 0:
            if self._decides:
                self._row.use_sets(self._sets())
            is_learned, decides = self._row.learn(held, n_row, n_key, label), self._n_notes > 0
        else:
            decides = self._decides
            x = store.unpack_one(slot, layout, held[:n])
            is_learned = single.learn_listed(x, held[len(held) - 8 * self._size :], label)
        if is_learned and decides and self._row is not None:
            kept = held[n - n_key // -8 * 8 : len(held) - 8 * self._size]
            self.decisions.learn_one(kept, self._row.number(label), len(self.model.classes))
        return is_learned

    def expire(self, time: int, x: Any = None) -> bool:
        """Learn events that expire at a time; return whether there are any.

        Nothing changes if an event x that arrives at that time needs `step`.
        """
        store = self.store
        if time == NOW or not store.table.state.learns_timeouts or self.single is None:
            return False
        if x is not None:
            if self._row is not None and encoding_error(x) is not None:  # refused by `step`
                return False
            try:
                store.pack_one(x)
            except (TypeError, ValueError):  # datetimes
                return False
        journal = store.expire(time)
        for i, slot in enumerate(journal[:, SLOT].tolist()):
            record = store.records(slot)
            about = (int(record[name]) for name in ("layout", "start", "n_row", "n_key", "n_words"))
            if not self._learn_stored(self.on_timeout, slot, *about):
                self._run(_NO_EVENTS, store.pack([], 0), _NO_KEYS, [], _LABEL[:0], journal[i:].copy())
                break
        self._free(journal)
        return len(journal) > 0

    def _decide_one(self, single: SingleRow) -> bytes:
        """Decide about the last predicted event; return the words to store for it."""
        self.decided, packed = self.decisions.decide_one(single.proba[0], self.model.classes)
        return packed + bytes(single.memory)

    # Batches ----------------------------------------------------------------------------------------------------------

    def step(self, events: Arrivals, late: LateLabels, late_keys: Sequence[str]) -> tuple[Predictions, Matches]:
        """Process events and labels in order; return predictions and matches."""
        n, m, store = len(events), len(late), self.store
        keys, is_event = PaddedKeys.of(events.keys), np.zeros(n + m, np.bool_)
        is_event[late.places_of_events(n)] = True
        rows = store.pack(events.features, n)
        digests, times = np.empty((n + m, 2), np.uint64), np.empty(n + m, np.int64)
        numbers, sizes = np.full(n + m, NO_LABEL), np.zeros(n + m, np.int64)
        digests[is_event], digests[~is_event] = store.digests(keys), store.digests(PaddedKeys.of(late_keys))
        times[is_event], times[~is_event] = events.times, late.times
        numbers[~is_event], sizes[is_event] = store.labels.of(late.labels), store.sizes(rows, keys)
        journal = store.run(digests, times, numbers, sizes)
        found = self._run(events, rows, keys, late_keys, is_event, journal)
        store.trim()
        return found

    def _run(
        self,
        events: Arrivals,
        rows: Packed,
        keys: PaddedKeys,
        late_keys: Sequence[str],
        is_event: NDArray[np.bool_],
        journal: Ints,
    ) -> tuple[Predictions, Matches]:
        """Predict and learn as the journal says; return predictions and matches."""
        store = self.store
        timeline = Timeline(journal, store, has_timeouts=self.on_timeout is not None, learn=self.learn)
        new = np.flatnonzero(timeline.slots >= 0)
        store.keep_objects(timeline.slots[new], new, rows)
        values = [self.on_timeout, None, *store.labels]
        given = self._model_rows(events, timeline, values)
        predicted = self.model.run(given)
        codes, scores = predicted.codes[given.predicted], predicted.scores[given.predicted]
        store.put(timeline.slots[new], codes[new], scores[new], events.origins[new])
        probas = None if predicted.probas is None else predicted.probas[given.predicted]
        kept, stored, weights, decided = self._decide(timeline, probas, [values[i] for i in timeline.labels.tolist()])
        joined = self._matches(timeline, values, stored, weights)
        if self.with_keys:
            joined.keys = self._keys(timeline, events.keys, late_keys, is_event)
        which = new[store.holds(timeline.slots[new])]
        memories = given.memories[: len(events)].view(np.float64)
        store.add(timeline.slots[which], which, rows, keys, np.column_stack([kept, memories]))
        self._free(journal)
        return Predictions(codes, scores, probas, timeline.slots, decided), joined

    def _model_rows(self, events: Arrivals, timeline: Timeline, values: Sequence[Any]) -> ModelRows:
        """Return rows for the model in order: events to predict, stored ones to learn."""
        store, n, old, size = self.store, len(events), timeline.old, self._size
        rows, labels, memory_rows = timeline.rows, timeline.label + 2, timeline.source + 1
        if self.learn:  # a label directly after its event is learned in the row of the event
            labels[timeline.fused - 1], memory_rows[timeline.fused - 1] = labels[timeline.fused], 0
        memories = np.zeros((n + len(old), size), np.int64)
        memories[n:] = store.part(old, "memory", size)[0].view(np.int64).reshape(len(old), size)
        features = stacked(events.features, n, store.rows(old), len(old))
        return ModelRows(
            in_order(features, timeline.source[rows]),
            CategoricalColumn(labels[rows], values),
            timeline.is_event[rows],
            np.concatenate([events.times, store.records(old)["time"]])[timeline.source[rows]],
            memories,
            memory_rows[rows],
        )

    def _decide(
        self, timeline: Timeline, probas: Floats | None, labels: list[Any]
    ) -> tuple[Floats, list[Floats], Floats, Decided]:
        """Decide about events, updating with labels in order of matching.

        Returns
        -------
        kept : ndarray
            Values to store with each event, as in `Decisions.packed`.
        stored : list of ndarray
            Values stored with the event of each match; empty if no longer stored.
        weights : ndarray
            Cost weight of each match.
        decided : Decided
            Decisions about the events.
        """
        n, m, source = len(timeline.slots), len(timeline.matches), timeline.source[timeline.matches]
        if probas is None:
            return np.zeros((n, 0)), [], np.ones(m), Decided()
        words, lengths = self.store.part(timeline.old, "probas", self._size)
        held = [np.zeros(0)] * n + np.split(words, np.cumsum(lengths))  # by source; the last one is empty, for -1
        weights, decided, k = np.ones(m), Decided(), probas.shape[1]
        if self.decisions:
            classes, is_new = self.model.classes, (source >= 0) & (source < n)
            rows = np.zeros((n + m, len(classes)))
            rows[:n, :k] = probas
            rows[n:] = self.decisions.unpacked([held[i] for i in source.tolist()], len(classes))[0]
            rows[n + np.flatnonzero(is_new)] = rows[source[is_new]]
            order = np.argsort(np.concatenate([np.flatnonzero(timeline.is_event), timeline.matches]))
            learned = np.concatenate([np.zeros(n, np.bool_), (timeline.kind[timeline.matches] != LATE) & self.learn])
            in_turn = CategoricalColumn(order, [*[None] * n, *labels])
            found = self.decisions.run(
                DecisionRows(np.nan_to_num(rows[order]), in_turn, order < n, learned[order]), classes
            )
            found = found.part(np.argsort(order))
            weights = weights if found.weights is None else found.weights[n:]
            decided = found.part(slice(n)).with_first_classes(k)
        held[:n] = kept = self.decisions.packed(probas, decided)
        return kept, [held[i] for i in source.tolist()], weights, decided

    def _matches(self, timeline: Timeline, values: Sequence[Any], stored: list[Floats], weights: Floats) -> Matches:
        """Return the matches, without keys."""
        at, records = timeline.matches, self.store.records(timeline.slot[timeline.matches])
        outcomes = np.array([_OUTCOME_OF[kind] for kind in timeline.kind[at].tolist()], np.int64)
        return Matches(
            CategoricalColumn(timeline.labels, values),
            records["code"].astype(np.int64),
            records["score"],
            [],
            records["origin"],
            records["time"].astype(np.int64),
            timeline.lag[at],
            CategoricalColumn(outcomes, OUTCOMES),
            stored,
            weights,
        )

    def _keys(
        self, timeline: Timeline, keys: Sequence[str], late_keys: Sequence[str], is_event: NDArray[np.bool_]
    ) -> list[str]:
        """Return the keys of the matches."""
        n, n_before, old = len(keys), np.cumsum(is_event), self.store.keys(timeline.old)
        places = zip(
            timeline.position[timeline.matches].tolist(), timeline.source[timeline.matches].tolist(), strict=True
        )
        return [late_keys[at - n_before[at]] if i < 0 else keys[i] if i < n else old[i - n] for at, i in places]

    def _free(self, journal: Ints) -> None:
        """Free the rows of events that are no longer pending."""
        kinds = journal[:, KIND].tolist() if len(journal) == 2 else []
        if EVENT in kinds and (kinds[0] in _LEAVING or kinds[1] in _LEAVING):  # the oldest event leaves
            slot = int(journal[1 - kinds.index(EVENT), SLOT])
            record = self.store.records(slot)
            if not self.store.segments.holds(record["status"]):
                self.store.free_one(slot, int(record["n_words"]))
            return
        slots = np.unique(journal[np.isin(journal[:, KIND], (IN_TIME, *_LEAVING)), SLOT])
        self.store.free(slots[~self.store.holds(slots)])


def _encoded(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")
