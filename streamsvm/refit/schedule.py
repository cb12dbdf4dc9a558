"""Schedule of refits: their start, their window, and the entry of their models."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.features.rows import EncodedRows, Floats, Ints
from streamsvm.models import ArchiveError, LinearModel
from streamsvm.models.archive import whole
from streamsvm.models.codec import SavedState, Stateful, nested, part_of
from streamsvm.online.base import OnlineClassifier
from streamsvm.online.saving import check_bounds
from streamsvm.parameters import ParameterError, ParameterTypeError, check_between, check_number
from streamsvm.refit.detectors import TriggerEvent
from streamsvm.refit.jobs import Job, JobHandle, Refit
from streamsvm.refit.refitted_model import RefittedModel
from streamsvm.refit.solvers import OneClassWindow, Solver
from streamsvm.refit.tasks import Task
from streamsvm.refit.triggers import Every, Growing, OnDemand, Trigger
from streamsvm.refit.vote import ModelVote
from streamsvm.refit.window_rows import WindowRows
from streamsvm.refit.windows import CHUNK_BYTES, CHUNK_EVENTS, Adaptive, Window

logger = logging.getLogger(__name__)

# Default delay as a share of the window's events, with bounds.
DELAY_SHARE, DELAY_LEAST, DELAY_MOST = 0.25, 64, 5_000
# Greatest number of labelled events per call of the vote.
MOST_ROWS = 2_048
# Greatest numbers of events, and of probabilities, for the calibration of a model: the stream waits for it.
CALIBRATION_MOST, CALIBRATION_PROBABILITIES = 1_000, 50_000
# Number of listed refits; older ones are only counted.
KEPT = 100


@dataclass(frozen=True)
class RefitSettings:
    """Parameters of `RefitClassifier` except learner and solver."""

    window: Window | None = None
    trigger: Trigger | None = None
    max_members: int = 8
    delay: int | float | None = None
    timeout: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        window, trigger, delay = self.window, self.trigger, self.delay
        if window is not None and not isinstance(window, Window):
            raise ParameterTypeError(
                "window", f"must be a window of streamsvm.refit, such as Latest(20_000), got {window!r}"
            )
        if window is not None and window.n < 2:
            raise ParameterError("window", f"must hold at least 2 events, got {window!r}")
        if trigger is not None and not isinstance(trigger, Trigger):
            raise ParameterTypeError(
                "trigger", f"must be a trigger of streamsvm.refit, such as Every(5_000), got {trigger!r}"
            )
        check_number("max_members", self.max_members, 1, 64, whole=True)
        if isinstance(delay, float):
            check_between("delay", delay, 0.0, 1.0)
        elif delay is not None:
            check_number("delay", delay, DELAY_LEAST, whole=True)
        if self.timeout is not None:
            check_number("timeout", self.timeout, 0.0)
        check_number("seed", self.seed, 0, 2**32 - 1, whole=True)


class Refits(Stateful):
    """Refits of a learner.

    Parameters
    ----------
    learner
        The learner.
    solver
        The solver of the windows.
    settings
        All other parameters.

    Attributes
    ----------
    vote
        The vote of the learner and the models.
    window
        The stored events.
    seen
        Labelled events so far.
    notes
        The latest refits.
    n_refits, is_due
        Number of refits begun, and whether another one is due.
    carried
        Settings of the last fit.
    outcomes, seconds
        Number of refits by outcome, and their duration in total.
    """

    saved = ("seen", "notes", "n_refits", "is_due", "carried", "outcomes", "seconds")

    def __init__(self, learner: OnlineClassifier, solver: Solver, settings: RefitSettings) -> None:
        self.learner, self.solver, self._settings = learner, solver, settings
        self.vote = ModelVote(settings.max_members)
        self.window = (settings.window or Adaptive(50_000)).begin()
        trigger = settings.trigger or Growing(most=25_000)
        self._trigger = trigger.begin()
        # A trigger that does not only count events takes effect at multiples of DELAY_LEAST.
        self._waits_for_block = not isinstance(trigger, (Every, Growing, OnDemand))
        self.seen = self.n_refits = 0
        self.is_due = False
        self._refit: Refit | None = None  # under way
        self._job: JobHandle | None = None  # while its window is solved
        self.carried: dict[str, Any] = {}
        self.notes: list[dict[str, Any]] = []
        self.outcomes: dict[str, int] = {}
        self.seconds = 0.0
        # Single events that are not processed yet: rows, classes, times and errors. A tuple per event would trigger the
        # garbage collector.
        self._singles: tuple[list[Floats], list[int], list[float], list[float]] = [], [], [], []
        self._look_ahead()

    # Events -----------------------------------------------------------------------------------------------------------

    @property
    def n_next(self) -> int:
        """Labelled events that may be voted on before the next action."""
        n = self._due - self.seen
        return n if self.vote.is_empty else min(n, MOST_ROWS)

    def request(self) -> None:
        """Request a refit, see `RefitClassifier.refit_now`."""
        self.take_singles()
        self._trigger.request()
        self._look_ahead()

    def add_events(self, rows: EncodedRows, codes: Ints, weights: Floats, times: Floats, errors: Floats) -> int:
        """Store labelled events and start actions that are due; return their number."""
        learned = np.flatnonzero(codes >= 0)
        at = first = 0
        while at < len(learned):
            chosen = learned[at:]
            n, event = self._trigger.update(times[chosen], errors[chosen])
            at += n
            last = int(learned[at - 1]) + 1
            part = slice(first, last)
            self.window.add(rows.part(first, last), codes[part], weights[part], times[part], errors[part])
            first = last
            if event is TriggerEvent.CUT:
                self.window.keep_latest(1)
            self.is_due = self.is_due or event is TriggerEvent.REFIT
        self.seen += len(learned)
        if self.seen >= self._due:
            self._act()
        return len(learned)

    def take_one(self, row: Floats, code: int, time: float, error: float) -> None:
        """Store a labelled event with a value in each column, and start due actions."""
        rows, codes, times, errors = self._singles
        if rows and len(rows[0]) != len(row):
            self.take_singles()
        rows.append(row.copy())
        codes.append(code)
        times.append(time)
        errors.append(error)
        if len(rows) >= min(self._due - self.seen, CHUNK_EVENTS) or len(rows) * row.nbytes >= CHUNK_BYTES:
            self.take_singles()

    def take_singles(self) -> None:
        """Process the single events so far."""
        rows, *values = self._singles
        if n := len(rows):
            d = len(rows[0])
            encoded = EncodedRows(np.concatenate(rows), np.arange(d), np.arange(n + 1) * d, True)
            codes, times, errors = map(np.array, values)
            self._singles = [], [], [], []
            self.add_events(encoded, codes, np.ones(n), times, errors)

    def _act(self) -> None:
        """Start actions that are due."""
        if self._refit is not None and self.seen >= self._refit.due:
            self._enter(self._refit)
        if self.is_due and not (self._waits_for_block and self.seen % DELAY_LEAST):
            self.is_due = False
            if self._refit is None:
                self._begin()
        self._look_ahead()

    def _look_ahead(self) -> None:
        """Compute the next event at which an action may be due."""
        until = [self._trigger.due_in()]
        if self._refit is not None:
            until.append(self._refit.due - self.seen)
        if self._waits_for_block:
            until.append(DELAY_LEAST - self.seen % DELAY_LEAST)
        self._due = self.seen + max(min(until), 1)

    # Refits -----------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Start solving the window."""
        settings, n = self._settings, len(self.window)
        self.n_refits += 1
        if isinstance(settings.delay, float):
            before = self.notes[-1]["event"] if self.notes else 0
            delay = max(round(settings.delay * (self.seen - before)), DELAY_LEAST)
        else:
            delay = int(settings.delay or min(max(DELAY_SHARE * n, DELAY_LEAST), DELAY_MOST))
        refit = Refit(self.n_refits, self.seen, self.seen + delay)
        self._refit = refit  # also if it is interrupted here
        relevance = self.learner.column_relevance() if self.solver.asks_relevance else None
        rest = dict(self.carried), self._newest_model(), settings.seed
        self._start(refit, partial(_task, self.window.held(), relevance, *rest))

    def _start(self, refit: Refit, task: Callable[[], Task]) -> None:
        self._refit = refit
        self._job = JobHandle(Job(self.solver, refit, task))

    def _newest_model(self) -> Any:
        """Return the newest model if the next solver can start from it."""
        members = [member for member in self.vote.members if member is not None]
        newest = max(members, key=lambda member: member.number).model if members else None
        return newest if isinstance(newest, LinearModel) else None

    def _enter(self, refit: Refit) -> None:
        """Add the model of a refit to the vote, and record the outcome."""
        handle = self._job
        self._refit = self._job = None
        note: dict[str, Any] = {"number": refit.number, "event": refit.event, "entered": refit.due, "events": 0}
        note |= {"solver": self.solver.name, "settings": {}, "score": None, "seconds": 0.0, "outcome": "votes"}
        try:
            if handle is None:
                raise RuntimeError("it was interrupted at its start, for example by Ctrl-C")
            self._add_model(handle.job, note)
        except OneClassWindow as error:  # normal in streams with long runs of a class
            note["outcome"] = f"skipped: {error}"
        except Exception as error:  # a solver may raise anything, and the learner continues
            note["outcome"] = self._failure(refit, error)
        self._remember(note)

    def _remember(self, note: dict[str, Any]) -> None:
        """Count a refit, and keep its note.

        Archives sort names, and reports of resumed runs have the same order.
        """
        kind = note["outcome"].partition(":")[0]
        self.outcomes = dict(sorted((self.outcomes | {kind: self.outcomes.get(kind, 0) + 1}).items()))
        self.seconds += note["seconds"]
        self.notes = [*self.notes, note][-KEPT:]

    def _add_model(self, job: Job, note: dict[str, Any]) -> None:
        """Wait for the model of a refit, and add it to the vote."""
        try:
            note["events"] = len(job.task.window)
            found: RefittedModel = job.result(self._settings.timeout)
        finally:
            note["seconds"] = job.seconds
        # Events after the start of the refit, which the model has not seen.
        n_new, n_classes = self.window.n_taken - 1 - int(job.task.window.numbers[-1]), self.learner.n_classes
        newer = self.window.latest(min(n_new, CALIBRATION_MOST, CALIBRATION_PROBABILITIES // n_classes))
        found.calibrate(newer.rows, newer.codes, n_classes)
        note["settings"] = dict(sorted(found.settings.items()))
        note["score"] = None if math.isnan(found.score) else found.score
        self.vote.add(found, n_classes)
        self.carried = dict(found.settings)

    def _failure(self, refit: Refit, error: Exception) -> str:
        """Return the outcome of a failed refit; log each new kind of failure."""
        outcome = f"failed: {type(error).__name__}: {error}"
        if not any(note["outcome"] == outcome for note in self.notes):
            logger.warning(
                "the refit after %d events by %s failed; the next trigger starts another: %s: %s",
                refit.event,
                self.solver.name,
                type(error).__name__,
                error,
            )
        return outcome

    def weights(self) -> dict[int, float]:
        """Return the share of the vote of each refit's model, by number."""
        _, *models = self.vote.standing()
        return {model["member"].number: model["weight"] for model in models}

    def totals(self) -> dict[str, Any]:
        """Return totals of refits, see `RefitClassifier.refit_totals`."""
        return {"outcomes": dict(self.outcomes), "seconds": self.seconds, "share": sum(self.weights().values())}

    # Saving -----------------------------------------------------------------------------------------------------------

    def state(self) -> SavedState:
        """Return header and arrays.

        The window of a running refit is stored, and solved again after loading.
        """
        self.take_singles()
        parts = {"window": self.window.state(), "vote": ({}, self.vote.state())}
        members = enumerate(self.vote.members, start=1)
        parts |= {f"member{k}": member.state() for k, member in members if member is not None}
        if self._job is not None:
            task, arrays = self._job.job.task.state()
            parts["job"] = task | asdict(self._job.job.refit), arrays
        own, _ = super().state()
        return nested(parts, own | {"triggered": self._trigger.state()})

    def resume(self, state: SavedState, n_classes: int) -> None:
        """Continue from `state`.

        Raises
        ------
        ArchiveError, ValueError, TypeError
            If the state is invalid.
        """
        (header, _), window = state, part_of(state, "window")
        check_bounds("codes", window[1]["codes"], 0, n_classes - 1)
        self.window.restore(*window)
        self._trigger.restore(header["triggered"])
        names = [f"member{k}" for k in range(1, len(self.vote.members) + 1)]
        members = [
            RefittedModel.from_state(part_of(state, name), self.solver, n_classes) if name in header else None
            for name in names
        ]
        self.vote.restore(part_of(state, "vote")[1], members, n_classes)
        super().restore(state)
        if "job" in header:
            task = Task.from_state(part_of(state, "job"), self._newest_model(), n_classes)
            job = header["job"]
            if not self.seen <= job["due"]:
                raise ArchiveError(f"a refit enters at event {job['due']}, but there were {self.seen} events")
            self._start(Refit(job["number"], job["event"], job["due"]), lambda: task)
        self._look_ahead()

    def is_valid(self) -> bool:
        """Return whether the restored values fit together."""
        numbers = (self.seen, self.n_refits, *map(whole, self.outcomes.values()))
        return min(numbers) >= 0 and all(whole(one["number"], 1) and type(one["outcome"]) is str for one in self.notes)


def without_running_refit(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> SavedState:
    """Return a state without the window that is being solved, for viewers."""
    kept = {name: value for name, value in header.items() if name != "job"}
    return kept, {name: array for name, array in arrays.items() if not name.startswith("job.")}


def _task(held: Callable[[], WindowRows], relevance: Floats | None, carried: dict[str, Any], *settings: Any) -> Task:
    """Return the task of solving a window."""
    window = held()
    n = window.n_columns
    return Task(window, n, None if relevance is None else relevance[:n], carried, *settings)
