"""A classifier that runs a learner and refits models to windows of the stream."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.precompile import prepare
from streamsvm.decide.changes import ModelSummary
from streamsvm.decide.conformal import AllSets
from streamsvm.ensemble.classifier import StreamSVMClassifier
from streamsvm.features.rows import Floats
from streamsvm.labels import unhashable
from streamsvm.loading import from_state as learner_from_state
from streamsvm.locks import locked
from streamsvm.models import ArchiveError
from streamsvm.models.codec import check_parts, nested, part_of
from streamsvm.models.saved import LOADABLE
from streamsvm.online.base import OnlineClassifier
from streamsvm.online.saving import decode_param, encode_param
from streamsvm.parameters import ParameterTypeError
from streamsvm.refit import frozen_models, outliers, settings, vote_kernels
from streamsvm.refit.refit_rows import RefitRows, seconds_or_nan
from streamsvm.refit.schedule import Refits, RefitSettings
from streamsvm.refit.solver_process import get_ready
from streamsvm.refit.solvers import solver_of
from streamsvm.refit.triggers import Every, OnDemand, Trigger, single
from streamsvm.refit.windows import Latest, Window

# Compiled when a classifier is created, so that no event waits for compilation.
_ENTRY_POINTS = [entry for module in (outliers, vote_kernels, frozen_models) for entry in module.ENTRY_POINTS.values()]
# Parameters stored unchanged in archives.
_PLAIN = ("max_members", "delay", "timeout", "seed")


class RefitClassifier(RefitRows):
    """Wrap an online learner and fit a batch solver to windows of the stream.

    Online learners follow drift. While a concept lasts, a solver that makes many passes over a window is more accurate.
    The `trigger` starts a refit: the `solver` receives the events of the `window`. A fixed number of events later, its
    model joins the vote. Its probabilities are calibrated on the latest of the events in between, at most 1,000. Models
    are weighted by the probability they gave to recent labels, so the model of a returning concept regains its weight.
    The learner predicts alone unless the vote was recently more accurate.

    If a model is late, the stream waits for it. Results are therefore reproducible. They do not depend on the batch
    size, or on saving and loading during a refit. A failed refit changes nothing.

    Thread-safe: several threads may predict and learn with one model, and each call is atomic.

    Parameters
    ----------
    learner
        One of this package's online learners. The classifier continues with a copy of it.
    solver
        `"trees"` (scikit-learn's boosted trees), `"cuts"` (`SampledCuts`), `"newton"` (`SmoothedNewton`) or `"bcd"`
        (`IndexedBCD`). They choose their settings on the newer part of the window. An instance of one of
        these classes or of any scikit-learn classifier is fitted with its own settings. Solvers run in a separate
        process, because they hold the interpreter's lock. If no process can be started, they run in a thread.
    window
        The events that are stored: `Latest`, `Since` or `Adaptive`. None for `Adaptive(50_000)`: the latest 50,000, or
        fewer after an increase of errors.
    trigger
        When a refit starts: `Every`, `Growing`, `EveryTime`, `OnDrift`, `OnDemand` or `FirstOf`. None for
        `Growing(most=25_000)`. Triggers other than `Every`, `Growing` and `OnDemand` take effect at the next multiple
        of 64 labelled events.
    max_members
        Maximum number of models in the vote, not counting the learner. A new model replaces the one with the smallest
        recent weight.
    delay
        Number of labelled events between the start of a refit and the entry of its model into the vote, at least 64. A
        float below 1 is a share of the events since the previous refit. None: a quarter of the window's events, at most
        5,000. Triggers have no effect during a refit. With a longer delay the model is older, and the stream waits less
        often.
    timeout
        Seconds that a solver may be late before it is stopped, without the start of its process. None waits
        for the solver. With a timeout, results depend on the speed of the machine.
    seed
        Random seed of the solvers.

    Attributes
    ----------
    classes_ : list
        Labels in order of first arrival.
    refits : list of dict
        The last 100 refits. Each has its `number`, the labelled `event` of its start, the event at which its model
        `entered`, and the number of `events` in its window. Further keys are `solver`, `settings`, their `score` on the
        newer part of the window, `seconds`, and `outcome`. `share` is the current share of its model in the vote.

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

    # One parameter for each attribute, as scikit-learn's and River's clones need: more than seven.
    def __init__(
        self,
        learner: OnlineClassifier,
        solver: Any = "trees",
        window: Window | None = None,
        trigger: Trigger | None = None,
        max_members: int = 8,
        delay: int | float | None = None,
        timeout: float | None = None,
        seed: int = 0,
    ) -> None:
        if not isinstance(learner, OnlineClassifier) or learner.parts:
            raise ParameterTypeError(
                "learner",
                "must be a StreamSVMClassifier without `refit` and costs, a CPMClassifier or a "
                f"BSGDClassifier, got {learner!r}",
            )
        own_solver = solver_of(solver)
        own_settings = RefitSettings(window, trigger, max_members, delay, timeout, seed)
        get_ready(own_solver)
        prepare(_ENTRY_POINTS)
        for entry in _ENTRY_POINTS:
            entry.compile()  # load it now, because some are first called long after the first event
        self.learner = learner
        self.solver = solver
        self.window = window
        self.trigger = trigger
        self.max_members = max_members
        self.delay = delay
        self.timeout = timeout
        self.seed = seed
        self._model = deepcopy(learner)
        self._refits = Refits(self._model, own_solver, own_settings)
        self._sets = AllSets()

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        small = StreamSVMClassifier(budget=20)
        yield {"learner": small, "solver": "newton", "trigger": Every(100), "delay": 64}
        yield {"learner": small, "solver": "trees", "trigger": Every(100), "delay": 64, "window": Latest(200)}

    @locked
    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    # Model state ------------------------------------------------------------------------------------------------------

    @property
    def notices(self) -> list[str]:
        """Warnings of the learner, and the failure of the latest refit."""
        failed = [note["outcome"] for note in self._refits.notes[-1:] if note["outcome"].startswith("failed")]
        return self._model.notices + failed

    def leaders(self) -> list[dict[str, Any]]:
        """Return the learner's heads and the refitted models, by weight.

        See `StreamSVMClassifier.leaders` for the keys.
        """
        (own, *others), name = self._refits.vote.standing(), self._refits.solver.name
        own["member"] = type(self._model).__name__
        heads = getattr(self._model, "leaders", lambda: [{**own, "head": "", "weight": 1.0}])()
        rows = [{**head, "weight": head["weight"] * own["weight"]} for head in heads]
        rows += [{**other, "member": "refit", "head": f"{other['member'].number} {name}"} for other in others]
        return sorted(rows, key=lambda row: -row["weight"])

    def summary(self) -> ModelSummary:
        """Return the state of the learner and the leading member.

        The leading member is the learner or the model of a refit.
        """
        found = self._model.summary()
        leader = self.leaders()[0]
        name = leader["member"] if leader["member"] != "refit" else f"refit {leader['head']}"
        return replace(found, leader=name if found.events else "")

    @property
    def refits(self) -> list[dict[str, Any]]:
        """The last 100 refits, each with the current share of its model in the vote."""
        shares = self._refits.weights()
        return [note | {"share": shares.get(note["number"], 0.0)} for note in self._refits.notes]

    def refit_totals(self) -> dict[str, Any]:
        """Return totals of refits.

        Returns
        -------
        dict
            `outcomes` has the number of refits by outcome, `seconds` their total duration, and `share` the share of
            their models in the vote.
        """
        return self._refits.totals()

    @property
    def refits_on_demand(self) -> bool:
        """Whether the trigger is or contains `OnDemand`."""
        return any(isinstance(one, OnDemand) for one in single(self.trigger)) if self.trigger is not None else False

    @locked
    def refit_now(self) -> None:
        """Start a refit after the next labelled event.

        With the trigger `OnDemand(gather)`, it starts after `gather` events. If the trigger is not `Every`, `Growing`
        or `OnDemand`, the refit starts at the next multiple of 64 labelled events.
        """
        self._refits.request()

    # One event --------------------------------------------------------------------------------------------------------

    def learn_one(self, x: dict[Any, Any], y: Any, w: float = 1.0, time: float | None = None) -> None:
        """Learn an event.

        Parameters
        ----------
        x
            Features by name.
        y
            The label, of any hashable type.
        w
            Weight of the event, 0 or more; events of weight 0 are skipped.
        time
            Event time in seconds or as a datetime, for windows and triggers that depend on time.

        Raises
        ------
        TypeError, ValueError
            If the learner refuses the event; nothing is learned in that case.
        """
        moment = seconds_or_nan(time)
        if not isinstance(y, Hashable):
            raise unhashable(y)
        learner = self._model
        with learner.lock:
            code = learner.labels.codes.get(y)
            row = learner.load_event(x) if code is not None and w == 1.0 else None
            if code is None or row is None or not self._learn_loaded(row, code, moment):
                self._learn_rows(self.encode_labelled([x], [y], [w], np.array([moment])), predict=False)
                learner.find_fast_path(x)

    def _learn_loaded(self, row: Floats, code: int, time: float) -> bool:
        """Learn the event that the learner has loaded; return False if it cannot be used."""
        if (found := self._model.learn_loaded(code)) is None:
            return False
        predicted, proba = found
        if not self._refits.vote.is_empty:
            predicted, proba = self._refits.vote.vote_on_one(row, proba, code)
        self._sets.learn_one(proba, code)
        self._refits.take_one(row, code, time, 0.0 if predicted == code else 1.0)
        return True

    def predict_one(self, x: dict[Any, Any], **kwargs: Any) -> Any:
        """Predict the most probable label of an event.

        Parameters
        ----------
        x
            Features by name.
        kwargs
            Ignored; for compatibility with River.

        Returns
        -------
        object or None
            The most probable label; None before anything has been learned.

        Raises
        ------
        TypeError, ValueError
            For a feature that is infinite, or neither number nor string nor None.
        """
        if not self._refits.vote.is_used:
            return self._model.predict_one(x)
        with self._lock:
            code, _ = self._vote_on(x)
            return self._model.labels.by_code[code]

    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """Predict the probability of each learned label.

        Parameters
        ----------
        x
            Features by name.
        kwargs
            Ignored.

        Returns
        -------
        dict
            Probability by label, 0 to 1; empty before anything has been learned.

        Raises
        ------
        TypeError, ValueError
            For a feature that is infinite, or neither number nor string nor None.
        """
        if not self._refits.vote.is_used:
            return self._model.predict_proba_one(x)
        with self._lock:
            _, proba = self._vote_on(x)
            return dict(zip(self.classes_, proba.tolist(), strict=False))

    def _vote_on(self, x: dict[Any, Any]) -> tuple[int, Floats]:
        """Return the most probable class of an event and all probabilities."""
        learner = self._model
        row = learner.load_event(x)
        if row is not None and (proba := learner.predict_loaded()) is not None:
            return self._refits.vote.vote_on_one(row, proba, -1)
        codes, _, probabilities = self.run_rows(learner.encode_event(x), n_proba=self.n_classes)
        return int(codes[0]), probabilities[0]

    # Saving -----------------------------------------------------------------------------------------------------------

    @locked
    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the whole state as a JSON header and arrays.

        A classifier restored by `from_state` continues bit for bit. During a refit, its window is stored, and the refit
        starts again after loading. A model from another package is stored as the window to which it was fitted.

        Returns
        -------
        header, arrays
            The content of an archive.

        Raises
        ------
        TypeError
            If a label, a feature name, or a parameter of the solver is of a type that cannot be saved.
        """
        refits, arrays = self._refits.state()
        params = {name: getattr(self, name) for name in _PLAIN} | {
            "learner": {name: encode_param(value) for name, value in self.learner._get_params().items()},
            "solver": settings.encode_solver(self.solver),
            "window": settings.encode_settings(self.window),
            "trigger": settings.encode_settings(self.trigger),
        }
        own = {"class": type(self).__name__, "params": params, "sets": list(map(list, self._sets))}
        header, of_learner = nested({"learner": self._model.state()}, own | refits)
        return header, of_learner | arrays | self._sets.arrays()

    @classmethod
    def _from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        state = dict(header), dict(arrays)
        check_parts(state)
        model = learner_from_state(*part_of(state, "learner"))
        if not isinstance(model, OnlineClassifier) or model.parts:
            raise ArchiveError("refits around a classifier that has refits or costs already")
        params = dict(header["params"])
        learner = type(model)(**{name: decode_param(value) for name, value in params.pop("learner").items()})
        params["solver"] = settings.decode_solver(params["solver"])
        params |= {name: settings.decode_settings(params[name]) for name in ("window", "trigger")}
        self = cls(learner, **params)
        self._model = model
        self._refits.learner = model
        self._refits.resume(state, len(model.labels.codes))
        self._sets = AllSets.from_state(header.get("sets", []), arrays)
        return self


LOADABLE["RefitClassifier"] = RefitClassifier
