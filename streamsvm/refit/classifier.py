"""A learner with refits: windows of the stream are solved again beside it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from river import base

from connectors.times import LATEST_S, seconds_of
from streamsvm.adjusting import Adjustable
from streamsvm.core.precompile import prepare
from streamsvm.decide.arrays import Members
from streamsvm.decide.changes import Changes, Moment, Spread
from streamsvm.decide.conformal import AllSets, Key
from streamsvm.decide.learner import PredictsManySets, answers
from streamsvm.decide.reasons import Explains
from streamsvm.ensemble.classifier import StreamSVMClassifier
from streamsvm.features.frames import like
from streamsvm.features.space import EncodedRows, Floats, Ints
from streamsvm.labels import unhashable
from streamsvm.loading import from_state as learner_from_state
from streamsvm.locks import LearnerLock, locked
from streamsvm.models import ArchiveError, LinearModel
from streamsvm.models.saved import LOADABLE, Archived
from streamsvm.online.archive import decode_param, encode_param, within
from streamsvm.online.base import Late, OnlineClassifier, one_row
from streamsvm.parameters import check_between, check_number
from streamsvm.refit import archive, outliers
from streamsvm.refit import expert_vote as panel
from streamsvm.refit import frozen_models as experts
from streamsvm.refit.experts import Expert
from streamsvm.refit.jobs import Asked, Job, Refit, get_ready
from streamsvm.refit.panel import Panel
from streamsvm.refit.solvers import Task, solver_of
from streamsvm.refit.triggers import Every, Growing, OnDemand, Trigger, TriggerEvent
from streamsvm.refit.triggers import decode as decode_trigger
from streamsvm.refit.triggers import encode as encode_trigger
from streamsvm.refit.window_rows import WindowRows
from streamsvm.refit.windows import Adaptive, Latest, Window

logger = logging.getLogger(__name__)

# Where nothing else is said a model enters when a quarter as many events as its window has have come, within bounds.
DELAY_SHARE, DELAY_LEAST, DELAY_MOST = 0.25, 64, 5_000
_NEVER = 1 << 62
# Experts are asked about so many labelled events at a time: who wakes among them is asked about the rest.
MOST_ROWS = 2_048
# What is compiled with the learner, rather than in the midst of the stream.
_ENTRIES = [entry for module in (outliers, panel, experts) for entry in module.ENTRIES.values()]
# What is kept of parameters as it is.
_PLAIN = ("experts", "delay", "search", "timeout", "seed")
# So many refits are remembered.
KEPT = 100


class RefitClassifier(Adjustable, Explains, Changes, PredictsManySets, Archived, base.MiniBatchClassifier):
    """A learner beside which windows of the stream are solved again, by a batch solver, as it runs.

    Online learners follow drift; where a concept stays, a solver that sees a window many times is far ahead. So now and
    then (`trigger`) the events that are remembered (`window`) are given to a `solver`, and the model that it finds
    votes beside the learner. It begins with next to no weight, is weighted by its recent accuracy, falls asleep when it
    is of no use, and stays as long as it would be missed: a concept that comes back is met by the model that knew it.
    Where models are worse than the learner they are not heard.

    A model enters at a fixed number of events after its refit began, and is waited for there if it is late: so a run
    gives the same results whenever it is repeated, in whatever batches events come, and also when it is saved and
    loaded while a window is being solved. A solver that fails leaves everything as it is.

    Thread-safe: any number of threads may predict with one model, single events or rows, while others learn; each call
    gives what it would give by itself.

    Parameters
    ----------
    learner
        One of this package's online learners. A copy of it goes on from what it has learned.
    solver
        `"trees"` (scikit-learn's boosted trees), `"cuts"` (`SampledCuts`), `"newton"` (`SmoothedNewton`) or `"bcd"`
        (`IndexedBCD`), of which the last three choose their settings on the newer part of the window; or an instance of
        these, or of any classifier by scikit-learn's protocol, which is fitted as it is. They run in a process of their
        own, since they hold the interpreter's lock, or in a thread where none can be started.
    window
        Which events are remembered: `Latest`, `Since`, `Reservoir` or `Adaptive`. None for `Adaptive(50_000)`: the
        latest 50,000, and fewer where errors have become more.
    trigger
        When a window is solved: `Every`, `Growing`, `EveryTime`, `OnDrift`, `OnDemand` or `FirstOf`. None for
        `Growing(most=25_000)`. A trigger that does not count events alone takes effect at the next multiple of 64.
    experts
        The most models that vote beside the learner.
    delay
        Labelled events from the beginning of a refit to the entry of its model, at least 64; or, as a float below 1,
        what share they are of those since the refit before. None for a quarter of the window's events, at most 5,000.
        While a window is being solved, triggers have no effect. A model that enters late is less
        fresh, and less often waited for.
    search
        Settings are chosen by fits on at most so many times the window's events in all.
    timeout
        A solver that is late by more than so many seconds is given up; those that its process takes to start do not
        count. None: it is waited for. With it, results depend on how fast the machine is.
    seed
        Of what solvers draw.

    Attributes
    ----------
    classes_ : list
        The labels, in order of first arrival.
    refits : list of dict
        The last 100 refits: its `number`, the labelled `event` after which it began, the one after which its model
        `entered`, the `events` of its window, `solver`, `settings`, their `score` on the newer part of the window,
        `seconds`, the `outcome`, and the `share` of the vote that its model has now.

    Examples
    --------
    >>> from river.datasets import synth
    >>> from streamsvm import CPMClassifier, RefitClassifier
    >>> from streamsvm.refit import Every

    >>> model = RefitClassifier(CPMClassifier(), "trees", trigger=Every(400), delay=100)
    >>> for x, y in synth.RandomRBF(seed_model=1, seed_sample=1, n_centroids=20).take(1_500):
    ...     model.learn_one(x, y)
    >>> [refit["event"] for refit in model.refits]
    [400, 800, 1200]
    >>> model.refits[0]["outcome"]
    'votes'
    """

    def __init__(
        self,
        learner: OnlineClassifier,
        solver: Any = "trees",
        window: Window | None = None,
        trigger: Trigger | None = None,
        experts: int = 8,
        delay: int | float | None = None,
        search: float = 1.0,
        timeout: float | None = None,
        seed: int = 0,
    ) -> None:
        if not isinstance(learner, OnlineClassifier) or learner.is_composed:
            raise TypeError(
                "`learner` must be a StreamSVMClassifier without `refit` and costs, a CPMClassifier or a "
                f"BSGDClassifier, got {learner!r}"
            )
        self._solver = solver_of(solver)
        if window is not None and not isinstance(window, Window):
            raise TypeError(f"`window` must be a window of streamsvm.refit, such as Latest(20_000), got {window!r}")
        if window is not None and window.n < 2:
            raise ValueError(f"`window` must hold at least 2 events, for no solver learns from one, got {window!r}")
        if trigger is not None and not isinstance(trigger, Trigger):
            raise TypeError(f"`trigger` must be a trigger of streamsvm.refit, such as Every(5_000), got {trigger!r}")
        check_number("experts", experts, 1, 64, whole=True)
        if isinstance(delay, float):
            check_between("delay", delay, 0.0, 1.0)
        elif delay is not None:
            check_number("delay", delay, DELAY_LEAST, whole=True)
        check_number("search", search, 0.0)
        if timeout is not None:
            check_number("timeout", timeout, 0.0)
        check_number("seed", seed, 0, 2**32 - 1, whole=True)
        get_ready(self._solver)
        prepare(_ENTRIES)
        for entry in _ENTRIES:
            entry.compile()  # loads it: some of it is called for the first time long after the first event
        self.learner = learner
        self.solver = solver
        self.window = window
        self.trigger = trigger
        self.experts = experts
        self.delay = delay
        self.search = search
        self.timeout = timeout
        self.seed = seed
        self._model = deepcopy(learner)
        self._memory = (window or Adaptive(50_000)).begin()
        trigger = trigger or Growing(most=25_000)
        self._trigger = trigger.begin()
        # Where what a trigger says depends on more than counts, it takes effect at multiples of 64 only.
        self._waits_for_block = not isinstance(trigger, (Every, Growing, OnDemand))
        self._panel = Panel(experts)
        self._sets = AllSets()
        self._seen = 0
        self._n_refits = 0
        self._is_due = False
        self._refit: Refit | None = None  # which is under way
        self._asked: Asked | None = None  # as long as its window is being solved
        self._carried: dict[str, Any] = {}
        self._at_hand: tuple[Any, Floats] | None = None  # where the single event is, and by what the learner takes it
        self._notes: list[dict[str, Any]] = []
        self._forgotten: dict[str, Any] = {"outcomes": {}, "seconds": 0.0}
        self._look_ahead()

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        small = StreamSVMClassifier(budget=20)
        yield {"learner": small, "solver": "newton", "trigger": Every(100), "delay": 64}
        yield {"learner": small, "solver": "trees", "trigger": Every(100), "delay": 64, "window": Latest(200)}

    @property
    def _mutable_attributes(self) -> set[str]:
        return {"model"}

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def _lock(self) -> LearnerLock:
        return self._model._lock

    # What the learner knows -------------------------------------------------------------------------------------------

    @property
    def model(self) -> OnlineClassifier:
        """The learner that runs."""
        return self._model

    @property
    def classes_(self) -> list[Any]:
        """The labels learned, in order of first arrival."""
        return self._model.classes_

    @property
    def n_events_learned(self) -> int:
        """How many events have been learned."""
        return self._model.n_events_learned

    @property
    def n_features_in_(self) -> int | None:
        """How many columns the arrays have that were learned, None where none were; others are refused."""
        return self._model.n_features_in_

    @n_features_in_.setter
    def n_features_in_(self, width: int | None) -> None:
        self._model.n_features_in_ = width

    def check_names(self, X: Any) -> None:
        """Compare the features of the first rows of a stream with those learned, as the learner does.

        Parameters
        ----------
        X
            A table, a list of dicts, or `SparseRows`.

        Raises
        ------
        FeatureMismatchError
            Where none is known.
        """
        self._model.check_names(X)

    @property
    def notices(self) -> list[str]:
        """What it has warned of."""
        failed = [note["outcome"] for note in self._notes[-1:] if note["outcome"].startswith("failed")]
        return self._model.notices + failed

    @locked
    def keep_categories(self, names: Sequence[Any]) -> None:
        """Take the strings under these names for categories from now on.

        Parameters
        ----------
        names
            Names of features.
        """
        self._model.keep_categories(names)

    @property
    def relevance(self) -> dict[Any, float]:
        """As the learner has it; empty where it has none."""
        found: dict[Any, float] = getattr(self._model, "relevance", {})
        return found

    def autocorrelation_effect(self) -> dict[str, float] | None:
        """As the learner has it; None where it has none."""
        effect = getattr(self._model, "autocorrelation_effect", None)
        return None if effect is None else effect()

    @locked
    def nearest(self, x: dict[Any, Any], n: int = 5) -> list[dict[str, Any]]:
        """The support vectors of the learner that are most like an event, as it has them; empty where it has none.

        Parameters
        ----------
        x
            Features by name.
        n
            How many at most.
        """
        found = getattr(self._model, "nearest", None)
        return [] if found is None else found(x, n)

    def leaders(self) -> list[dict[str, Any]]:
        """The learner's heads, and the experts, the leading first: as `StreamSVMClassifier.leaders` has it."""
        own, *others = self._panel.standing()
        heads = getattr(self._model, "leaders", lambda: [{"member": type(self._model).__name__, "head": "", **own}])()
        rows = [{key: value for key, value in head.items() if key != "expert"} for head in heads]
        for row in rows:
            row["weight"] *= own["weight"]
        for other in others:
            expert = other.pop("expert")
            rows.append({"member": "refit", "head": f"{expert.number} {self._solver.name}", **other})
        return sorted(rows, key=lambda row: -row["weight"])

    def spreads(self, names: Collection[Hashable] | None = None, most: int | None = None) -> dict[Hashable, Spread]:
        """What the learner knows of the values of columns.

        Parameters
        ----------
        names
            Of which columns; None for all.
        most
            Of so many of them, in order of arrival; None for all.
        """
        return self._model.spreads(names, most)

    def moment(self) -> Moment:
        """What the learner knows now, and who leads: it, or the model of a refit."""
        found = self._model.moment()
        leader = self.leaders()[0]
        name = leader["member"] if leader["member"] != "refit" else f"refit {leader['head']}"
        return replace(found, leader=name if found.events else "")

    @property
    def refits(self) -> list[dict[str, Any]]:
        """The last refits, and what share of the vote the model of each has now."""
        shares = self._shares()
        return [note | {"share": shares.get(note["number"], 0.0)} for note in self._notes]

    def refit_totals(self) -> dict[str, Any]:
        """All refits so far: how many by `outcomes`, their `seconds`, and the `share` of the vote their models have."""
        return _counted(self._notes, self._forgotten) | {"share": sum(self._shares().values())}

    def _shares(self) -> dict[int, float]:
        """What share of the vote the model of each refit has now, by its number."""
        if self._panel.is_empty:
            return {}
        _, *experts = self._panel.standing()
        return {one["expert"].number: one["weight"] for one in experts}

    @property
    def n_bytes_of_window(self) -> int:
        """The memory of the events that are remembered."""
        return self._memory.n_bytes

    @locked
    def refit(self) -> None:
        """Have the window solved after the next labelled event, or the next multiple of 64 of them."""
        self._trigger.ask()
        self._look_ahead()

    @locked
    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_at_hand": None}  # a copy of the learner has it elsewhere

    # One event --------------------------------------------------------------------------------------------------------

    def learn_one(self, x: dict[Any, Any], y: Any, w: float = 1.0, time: float | None = None) -> None:
        """Learn one event, as the learner does.

        Parameters
        ----------
        x
            Features by name.
        y
            The label, of any hashable type.
        w
            How much the event weighs, 0 or more; at 0 it is left out.
        time
            Its event time in seconds or as a datetime, for windows and triggers of time.

        Raises
        ------
        TypeError, ValueError
            As the learner does; nothing has been learned then.
        """
        moment = _seconds(time)
        if not isinstance(y, Hashable):
            raise unhashable(y)
        with self._model._lock:
            code = self._model.labels.codes.get(y)
            is_packed = code is not None and w == 1.0 and self._pack(x)
            if is_packed and self._model._first is not None:
                n = self._model._space.plain_length
                self._model._look_at_event(np.arange(n), self._model._row[:n].copy())
            if code is None or not is_packed or not self._learn_packed(code, moment):
                rows, codes, weights = self._model._prepare([x], [y], [w], False)
                self._learn_rows(rows, codes, weights, np.array([moment]), predict=False)
                self._model._space.look_for_fast_path(x)

    def _pack(self, x: Any) -> bool:
        """Make an event the learner's single one at hand, if it has a number under each name that is known."""
        model = self._model
        model._make_room(1)
        if model._fast[0] != model._space.plain_length:
            model._follow_space()
        return model._pack(x)

    def _learn_packed(self, code: int, time: float) -> bool:
        """Learn the event at hand, and remember it; False where that cannot be done."""
        model = self._model
        row = self._row_at_hand()
        if self._is_empty and not self._sets:
            predicted = model._test_packed(code)
            if predicted < -1:
                return False
        else:
            proba = model._learn_packed(code)
            if proba is None:
                return False
            if self._is_empty:
                predicted = int(proba.argmax()) if len(proba) else -1
            else:
                predicted, proba = self._panel.vote_on_one(row, proba, code)
            self._sets.learn_one(proba, code)
        error = 0.0 if predicted == code else 1.0
        self._memory.add_one(row, code, time, error)
        if not self._trigger.passes():
            self._heed(self._trigger.see(np.array([time]), np.array([error])).event)
        self._count(1)
        return True

    def _row_at_hand(self) -> Floats:
        """The row of the single event at hand, where the learner has it."""
        fast = self._model._fast
        if self._at_hand is None or self._at_hand[0] is not fast:  # other columns, or another place for them
            self._at_hand = fast, self._model._row[: self._model._space.plain_length]
        return self._at_hand[1]

    def predict_one(self, x: dict[Any, Any], **kwargs: Any) -> Any:
        """The most probable label; None as long as nothing has been learned.

        Parameters
        ----------
        x
            Features by name.
        kwargs
            Taken and not looked at, as River passes what comes with an event.

        Raises
        ------
        TypeError, ValueError
            For a feature that is infinite, or neither number nor string nor None.
        """
        if self._is_alone:
            return self._model.predict_one(x)
        with self._lock:
            code, _ = self._vote_on(x)
            return self._model.labels.answers[code]

    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """The probability of each label learned, 0 to 1; empty as long as nothing has been.

        Parameters
        ----------
        x
            Features by name.
        kwargs
            Taken and not looked at.

        Raises
        ------
        TypeError, ValueError
            For a feature that is infinite, or neither number nor string nor None.
        """
        if self._is_alone:
            return self._model.predict_proba_one(x)
        with self._lock:
            _, proba = self._vote_on(x)
            return dict(zip(self.classes_, proba.tolist(), strict=False))

    def _vote_on(self, x: dict[Any, Any]) -> tuple[int, Floats]:
        """The most probable class, and the probabilities of all that are known."""
        model = self._model
        n = int(model._n_classes[()])
        if self._pack(x) and model._predict_packed():
            return self._panel.vote_on_one(self._row_at_hand(), model._proba[:n], -1)
        rows = one_row(*model._space.encode_event(x, learn=False))
        codes, _, probabilities, _ = self._run_part(rows, None, None, True, n)
        return int(codes[0]), probabilities[0]

    # Many events ------------------------------------------------------------------------------------------------------

    @locked
    def learn_many(self, X: Any, y: Any, w: Any = None, times: Any = None) -> None:
        """Learn rows one after another, exactly as a loop of `learn_one` does.

        Parameters
        ----------
        X
            n rows: a data frame, an array of shape (n, d), a scipy sparse matrix, a list of dicts.
        y
            n labels.
        w
            n weights, one for all rows, or None for 1.
        times
            n event times in seconds or as datetimes, for windows and triggers of time.

        Raises
        ------
        BadRows
            Where rows cannot be learned from; no row has been then.
        """
        event_times = _times(times, y)
        self._learn_rows(*self._model._prepare(X, y, w, False), event_times, predict=False)

    def _learn_rows(
        self,
        rows: EncodedRows,
        codes: Ints,
        weights: Floats,
        times: Floats | None,
        predict: bool = True,
        proba: bool = False,
        sets: Key | None = None,
    ) -> tuple[Ints, Floats, Members | None]:
        """Predict and learn rows: the classes, all probabilities, and the sets that are wanted."""
        n_proba = len(self._model.labels.codes) if proba or self._sets else 0
        found, _, shares = self._run(rows, codes, weights, times, predict, n_proba)
        return found, shares, self._sets.run(shares, np.where(weights > 0.0, codes, -1), sets)

    @locked
    def predict_many(self, X: Any) -> Any:
        """The labels `predict_one` gives for rows.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.

        Returns
        -------
        series or ndarray of objects, shape (n,)
            A series of the frame's kind where X is a frame; None where nothing has been learned.

        Raises
        ------
        BadRows
            Where rows cannot be used.
        """
        codes, _, _ = self._run(self._model._space.encode(X))
        return like(X, self._model.labels.decode(codes))

    @locked
    def proba_array(self, X: Any) -> Floats:
        """The probabilities of rows as `predict_proba_many` has them, as an array whatever the rows come in.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.
        """
        n = int(self._model._state.n_classes)
        _, _, proba = self._run(self._model._space.encode(X), n_proba=n)
        return proba

    @locked
    def peek_proba_many(self, X: Any) -> Floats:
        """What `predict_proba_many` gives, as somebody sees it who looks on: no trace is left.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.

        Returns
        -------
        ndarray of float64, shape (n, n_classes)
            Over `classes_`, by the vote of all.
        """
        n = int(self._model._state.n_classes)
        _, _, proba = self._run(self._model._space.encode(X), predict=False, n_proba=n)
        return proba

    @locked
    def test_then_train(
        self,
        X: Any,
        y: Any,
        *,
        times: Any = None,
        w: Any = None,
        proba: bool = False,
        coverage: float | None = None,
        by_class: bool = False,
    ) -> Any:
        """Predict each row, then learn it, exactly as a loop of `predict_one` and `learn_one` does.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.
        y
            n labels; where None or NaN the row is only predicted.
        times
            n event times in seconds or as datetimes, for windows and triggers of time.
        w
            n weights, one for all rows, or None for 1.
        proba
            Whether to return the probabilities too.
        coverage, by_class
            Where a coverage is given, also return sets of labels, as `predict_set_one` has them.

        Returns
        -------
        labels or (labels, probabilities) or (labels, sets) or (labels, probabilities, sets)
            Predicted labels, shape (n,), None where nothing had been learned; probabilities over `classes_` as it is
            afterwards, shape (n, n_classes), 0 for classes not known yet; whether each class is in the set, of that
            shape.

        Raises
        ------
        BadRows
            Where rows cannot be used; nothing has been learned then.
        """
        event_times, key = _times(times, y), self._sets_asked(coverage, by_class)
        rows, codes, weights = self._model._prepare(X, y, w, True)
        found, shares, members = self._learn_rows(rows, codes, weights, event_times, proba=proba, sets=key)
        predicted = like(X, self._model.labels.decode(found))
        return answers(predicted, shares if proba else None, members)

    @property
    def memory_size(self) -> int:
        """How many numbers the learner has to remember of the moment of a prediction, to learn it late."""
        return self._model.memory_size

    @locked
    def run_batch(
        self,
        features: Any,
        labels: Sequence[Any],
        learn: bool = True,
        proba: bool = False,
        times: Any = None,
        memories: Ints | None = None,
        apart: Ints | None = None,
    ) -> Any:
        """Predict each event of a batch, then (if `learn`) learn it where its label is not None.

        Parameters
        ----------
        features
            n rows, as for `learn_many`.
        labels
            n labels, None where unknown.
        learn
            Whether to learn, or only to predict.
        proba
            Whether to return the probabilities too.
        times
            n event times in seconds or as datetimes, for windows and triggers of time.
        memories, apart
            For labels that come late, as `StreamSVMClassifier.run_batch` has them.

        Returns
        -------
        (codes, scores) or (codes, scores, probabilities)
            As `StreamSVMClassifier.run_batch` returns them.
        """
        if learn:
            late = None if memories is None or apart is None else (memories, apart)
            event_times = _times(times, labels)
            rows, codes, weights = self._model._prepare(
                features, labels, None, True, complete=memories is None, whole=False
            )
            n_proba = len(self._model.labels.codes) if proba else 0
            found = self._run(rows, codes, weights, event_times, n_proba=n_proba, late=late)
        else:
            n_proba = int(self._model._state.n_classes) if proba else 0
            found = self._run(self._model._space.encode(features), n_proba=n_proba)
        return found if proba else found[:2]

    def _run(
        self,
        rows: EncodedRows,
        codes: Ints | None = None,
        weights: Floats | None = None,
        times: Floats | None = None,
        predict: bool = True,
        n_proba: int = 0,
        late: Late | None = None,
    ) -> tuple[Ints, Floats, Floats]:
        """Predict rows, and learn those with a class; up to where something happens at a time."""
        if codes is None or weights is None:
            return self._run_part(rows, None, None, predict, n_proba)[:3]
        n = len(rows)
        codes = np.where(weights > 0.0, codes, -1)
        event_times = np.full(n, math.nan) if times is None else times
        found, scores, proba = np.full(n, -1), np.full(n, math.nan), np.zeros((n, n_proba))
        learned, at = np.flatnonzero(codes >= 0), 0
        n_done = 0
        while at < n:
            n_next = self._due - self._seen if self._is_empty else min(self._due - self._seen, MOST_ROWS)
            end = n if n_done + n_next > len(learned) else int(learned[n_done + n_next - 1]) + 1
            part = slice(at, end)
            found[part], scores[part], proba[part], errors = self._run_part(
                rows.part(at, end),
                codes[part],
                weights[part],
                predict,
                n_proba,
                None if late is None else (late[0], late[1][part]),
            )
            n_done += self._follow(rows.part(at, end), codes[part], weights[part], event_times[part], errors)
            at = end
        return found, scores, proba

    def _n_until_something(self) -> int:
        """After how many labelled events something may happen at the earliest."""
        due = self._trigger.due_in()
        until = [_NEVER if due is None else due]
        if self._refit is not None:
            until.append(self._refit.due - self._seen)
        if self._waits_for_block:
            until.append(DELAY_LEAST - self._seen % DELAY_LEAST)
        return max(min(until), 1)

    def _run_part(
        self,
        rows: EncodedRows,
        codes: Ints | None,
        weights: Floats | None,
        predict: bool,
        n_proba: int,
        late: Late | None = None,
    ) -> tuple[Ints, Floats, Floats, Floats]:
        """Predict rows, and learn them: the classes, their probabilities, all probabilities, and the errors."""
        n_classes = max(len(self._model.labels.codes), n_proba)
        labels = np.full(len(rows), -1) if codes is None else codes

        def learner() -> Floats:
            asked: dict[str, Any] = {"predict": predict, "score": True, "n_proba": n_classes, "late": late}
            _, _, proba = self._model._run(rows, codes, weights, **asked)
            return proba

        if self._panel.is_empty:
            found, scores, proba = self._model._run(
                rows, codes, weights, predict=predict, score=True, n_proba=n_proba, late=late
            )
            return found, scores, proba, (found != labels).astype(float)
        found, scores, proba, errors = self._panel.vote(rows, labels, n_classes, learner)
        return found, scores, proba[:, :n_proba], errors

    # Refits -----------------------------------------------------------------------------------------------------------

    def _follow(self, rows: EncodedRows, codes: Ints, weights: Floats, times: Floats, errors: Floats) -> int:
        """Remember labelled events, and do what is due after them; how many there were."""
        learned = np.flatnonzero(codes >= 0)
        at = first = 0
        while at < len(learned):
            chosen = learned[at:]
            n, trigger_event = self._trigger.see(times[chosen], errors[chosen])
            at += n
            last = int(learned[at - 1]) + 1
            part = slice(first, last)
            self._memory.add(rows.part(first, last), codes[part], weights[part], times[part], errors[part])
            first = last
            self._heed(trigger_event)
        self._count(len(learned))
        return len(learned)

    def _heed(self, trigger_event: TriggerEvent) -> None:
        """Do what a trigger says of the last event remembered."""
        if trigger_event is TriggerEvent.CUT:
            self._memory.keep_latest(1)
        elif trigger_event is TriggerEvent.REFIT:
            self._is_due = True

    def _count(self, n: int) -> None:
        """So many labelled events more have come: do what is due after them."""
        self._seen += n
        if self._seen < self._next:
            return
        if self._seen < self._due:
            self._look_around()
            return
        if self._refit is not None and self._seen >= self._refit.due:
            self._enter(self._refit)
        if self._is_due and not (self._waits_for_block and self._seen % DELAY_LEAST):
            self._is_due = False
            if self._refit is None:
                self._begin()
        self._look_ahead()

    def _look_ahead(self) -> None:
        """Note until when nothing happens, and whether there is nobody but the learner, or nobody else is heard."""
        self._due = self._seen + self._n_until_something()
        self._is_empty = self._is_alone = self._panel.is_empty
        self._look_around()

    def _look_around(self) -> None:
        """See whether nobody but the learner is heard, and note until when that stays so."""
        self._next = self._due
        if not self._is_empty:
            self._is_alone, n = self._panel.look_around()
            self._next = min(self._next, self._seen + n)

    def _begin(self) -> None:
        """Begin to solve the window, by what the learner knows."""
        self._n_refits += 1
        refit = Refit(self._n_refits, self._seen, self._seen + self._delay(len(self._memory)))
        self._refit = refit  # also if it is interrupted here
        relevance, carried = self._known_to_solver(), dict(self._carried)
        self._start(
            refit, partial(_task, self._memory.held(), relevance, carried, self.search, self._newest_model(), self.seed)
        )

    def _wait_for(self, job: Job) -> tuple[Expert | None, dict[str, Any]]:
        """What a solver found, if anything, and what is noted of it."""
        refit, found = job.refit, None
        note = self._new_note(refit)
        try:
            note["events"] = len(job.task.window)
            found = job.result(self.timeout)
            note["settings"] = dict(found.settings)
            note["score"] = None if math.isnan(found.score) else found.score
        except Exception as error:  # whatever a solver raises: the learner goes on as it was
            found, note["outcome"] = None, self._failure(refit, error)
        note["seconds"] = job.seconds
        return found, note

    def _new_note(self, refit: Refit) -> dict[str, Any]:
        return {
            "number": refit.number,
            "event": refit.event,
            "entered": refit.due,
            "events": 0,
            "solver": self._solver.name,
            "settings": {},
            "score": None,
            "seconds": 0.0,
            "outcome": "",
        }

    def _failure(self, refit: Refit, error: Exception) -> str:
        """What is noted of a refit that failed, and said where that is news."""
        outcome = f"failed: {type(error).__name__}: {error}"
        if not any(note["outcome"] == outcome for note in self._notes):
            logger.warning(
                "the refit after %d events by %s failed, and is tried again at the next trigger: %s: %s",
                refit.event,
                self._solver.name,
                type(error).__name__,
                error,
            )
        return outcome

    def _delay(self, n: int) -> int:
        """How many events after the beginning of a refit of n events its model enters."""
        if isinstance(self.delay, float):
            before = self._notes[-1]["event"] if self._notes else 0
            return max(round(self.delay * (self._seen - before)), DELAY_LEAST)
        return int(self.delay or min(max(DELAY_SHARE * n, DELAY_LEAST), DELAY_MOST))

    def _newest_model(self) -> Any:
        """What the latest expert knows, to start from, where that is of planes; None where there is none."""
        experts = [expert for expert in self._panel.experts if expert is not None]
        newest = max(experts, key=lambda expert: expert.number).model if experts else None
        return newest if isinstance(newest, LinearModel) else None

    def _start(self, refit: Refit, task: Callable[[], Task]) -> None:
        self._refit = refit
        self._asked = Asked(Job(self._solver, refit, task))

    def _known_to_solver(self) -> Floats | None:
        """The part of each column in the learner's metric, None where it has none, or the solver does not ask."""
        if not self._solver.asks_relevance:
            return None
        found, space = self._model._relevances(), self._model._space
        if found is None:
            return None
        relevances = np.zeros(len(space.names))
        relevances[: len(found)] = found
        relevances[[j for j in range(len(found)) if space.is_dead(j)]] = 0.0
        return relevances

    def _enter(self, refit: Refit) -> None:
        """Let the model of a refit enter, and note how it went."""
        asked = self._asked
        self._refit = self._asked = None
        if asked is None:
            failure = self._failure(refit, RuntimeError("it was interrupted as it began, as by Ctrl-C"))
            self._remember(self._new_note(refit) | {"outcome": failure})
            return
        found, note = self._wait_for(asked.job)
        if found is not None:
            try:
                if not found.has_arrays:
                    found.fitted_to(asked.job.task)
                self._panel.enter(found, int(self._model._n_classes[()]))
                note["outcome"] = "votes"
                self._carried = dict(found.settings)
            except Exception as error:
                note["outcome"] = self._failure(refit, error)
        self._remember(note)

    def _remember(self, note: dict[str, Any]) -> None:
        """Note a refit; of those that are no longer held, counts remain."""
        self._notes.append(note)
        if len(self._notes) > KEPT:
            self._forgotten = _counted([self._notes.pop(0)], self._forgotten)

    # Saving -----------------------------------------------------------------------------------------------------------

    @locked
    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """All there is to know, as a JSON header and arrays: `from_state` continues from it bit for bit.

        A window that is being solved is kept, and solved anew by whoever continues. A model no arrays are known for, as
        of a foreign classifier, is kept as the window it was fitted to.

        Raises
        ------
        TypeError
            Where a label, a feature name, or a parameter of the solver is of a type that cannot be saved.
        """
        header, arrays = self._model.state()
        window_header, window_arrays = self._memory.state()
        experts = [None if expert is None else archive.expert_state(expert) for expert in self._panel.experts]
        arrays = archive.under("learner", arrays) | archive.under("window", window_arrays)
        arrays |= archive.under("panel", self._panel.state())
        for k, kept in enumerate(experts, start=1):
            arrays |= archive.under(f"expert{k}", {} if kept is None else kept[1])
        job = None
        if self._asked is not None:
            asked = self._asked.job
            task, rows = archive.task_state(asked.task)
            job = archive.refit_header(asked.refit) | {"task": task}
            arrays |= archive.under("job", rows)
        whole = {
            "class": type(self).__name__,
            "params": {name: getattr(self, name) for name in _PLAIN}
            | {
                "learner": {name: encode_param(value) for name, value in self.learner._get_params().items()},
                "solver": archive.encode_solver(self.solver),
                "window": archive.encode_window(self.window),
                "trigger": None if self.trigger is None else encode_trigger(self.trigger),
            },
            "learner": header,
            "memory": window_header,
            "triggered": self._trigger.state(),
            "experts": [None if kept is None else kept[0] for kept in experts],
            "job": job,
            "seen": self._seen,
            "n_refits": self._n_refits,
            "is_due": self._is_due,
            "carried": self._carried,
            "refits": self._notes,
            "forgotten": self._forgotten,
            "sets": self._sets.header(),
        }
        arrays |= self._sets.arrays()
        return whole, arrays

    @classmethod
    def _from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        parts = archive.parts_of(arrays)
        model = learner_from_state(header["learner"], parts.pop("learner"))
        if not isinstance(model, OnlineClassifier) or model.is_composed:
            raise ArchiveError("refits around a classifier that has refits or costs already")
        params = dict(header["params"])
        learner = type(model)(**{name: decode_param(value) for name, value in params.pop("learner").items()})
        params["solver"] = archive.decode_solver(params["solver"])
        params["window"] = archive.decode_window(params["window"])
        params["trigger"] = None if params["trigger"] is None else decode_trigger(params["trigger"])
        self = cls(learner, **params)
        self._model, n_classes = model, len(model.labels.codes)
        window = parts.pop("window")
        within("codes", window["codes"], 0, n_classes - 1)
        self._memory.restore(header["memory"], window)
        self._trigger.restore(header["triggered"])
        experts = [
            None if kept is None else archive.expert_of(kept, parts.pop(f"expert{k}"), self._solver, n_classes)
            for k, kept in enumerate(header["experts"], start=1)
        ]
        self._panel.restore(parts.pop("panel"), experts, n_classes)
        self._seen, self._n_refits = int(header["seen"]), int(header["n_refits"])
        self._is_due, self._carried = bool(header["is_due"]), dict(header["carried"])
        self._notes = [dict(note) for note in header["refits"]]
        self._forgotten = _counted([], header["forgotten"])
        self._sets = AllSets.from_state(header.get("sets", []), archive.under("sets", parts.pop("sets", {})))
        self.refits, self.refit_totals()  # refuses notes that are none
        if (job := header["job"]) is not None:
            task = archive.task_of(job["task"], parts.pop("job"), self._newest_model(), n_classes)
            if not self._seen <= job["due"]:
                raise ArchiveError(f"a refit enters at event {job['due']}, and {self._seen} have come")
            self._start(Refit(job["number"], job["event"], job["due"]), lambda: task)
        self._look_ahead()
        if parts:
            raise ArchiveError(f"there are arrays of {sorted(parts)[0]!r}, which have no place here")
        return self


LOADABLE["RefitClassifier"] = RefitClassifier


def _task(held: Callable[[], WindowRows], relevance: Floats | None, carried: dict[str, Any], *settings: Any) -> Task:
    """A window to be solved."""
    window = held()
    n = window.n_columns
    return Task(window, n, None if relevance is None else relevance[:n], carried, *settings)


def _counted(notes: Sequence[Mapping[str, Any]], before: Mapping[str, Any]) -> dict[str, Any]:
    """How many refits had which outcome, and their seconds: these beside those before."""
    outcomes = {str(kind): int(n) for kind, n in before["outcomes"].items()}
    for note in notes:
        kind = note["outcome"].partition(":")[0]
        outcomes[kind] = outcomes.get(kind, 0) + 1
    return {"outcomes": outcomes, "seconds": before["seconds"] + sum(float(note["seconds"]) for note in notes)}


def _times(times: Any, labels: Any) -> Floats | None:
    """Event times in seconds, one for each label, NaN where there is none; None for none at all."""
    if times is None:
        return None
    if isinstance(times, np.ndarray) and times.dtype == np.float64 and not (np.abs(times) >= LATEST_S).any():
        found = times
    else:
        found = np.array([_seconds(time) for time in times], float)
    if len(found) != len(labels):
        raise ValueError(f"{len(labels)} rows need {len(labels)} event times, got {len(found)}")
    return found


def _seconds(time: Any) -> float:
    return math.nan if time is None else seconds_of(time)
