"""Monitoring of the features of a run: alarms and their records."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from connectors.events import Batch, Features, SparseRows
from connectors.outputs.results import ALARM
from streamsvm.models.archive import ArchiveError, whole
from streamsvm.models.codec import SavedState, nested, part_of
from streamsvm.names import listed
from streamsvm.online.adapters import Predictions
from streamsvm.parameters import ParameterError
from streamsvm.run.accuracy_drops import ALPHA, AccuracyDrop
from streamsvm.run.config import DEFAULT_REFERENCE, RunConfig
from streamsvm.run.errors import RunError, SetupError
from streamsvm.run.formatting import plain
from streamsvm.run.history import History, refitting
from streamsvm.run.options import option_of
from streamsvm.run.stages import Stage, Step

if TYPE_CHECKING:
    from streamsvm.monitor import ColumnState, FeatureMonitor, Profile
    from streamsvm.run.loop import RunLoop

_MOST = 256  # greatest number of stored alarms
_MOST_NAMES = 5
_FIELDS = (*ALARM, "judged", "labelled")  # of a stored alarm

logger = logging.getLogger("streamsvm.run")


class RunMonitor:
    """Monitors the features of a run.

    Alarms depend on the stream alone, not on clocks or batches, so that a resumed run writes equal records.

    Parameters
    ----------
    config
        Settings.

    Attributes
    ----------
    features
        The monitor of the features.
    alarms
        The last alarms, at most 256, each as a dict.
    counts
        Number of alarms by kind.
    """

    def __init__(self, config: RunConfig) -> None:
        from streamsvm.monitor import FeatureMonitor

        self._config = config
        given = self._given = DEFAULT_REFERENCE if config.reference is None else config.reference
        self.profile = read_profile(given) if isinstance(given, str) else None
        self._known = [] if self.profile is None else [column.name for column in self.profile.columns]
        options: dict[str, Any] = {} if config.false_alarms is None else {"false_alarms": config.false_alarms}
        options |= {"reset": config.reset_reference.replace("-", "_")} if config.reset_reference else {}
        if self.profile is not None:
            options["columns"] = [name for name in self._known if name not in self._no_features]
        try:
            self.features: FeatureMonitor = FeatureMonitor(reference=self.profile or int(given), **options)
        except ParameterError as error:
            option = option_of(error.parameter)
            raise SetupError(f"{option} {str(error).removeprefix(f'`{error.parameter}` ')}", option=option) from error
        self.alarms: list[dict[str, Any]] = []
        self.counts: Counter[str] = Counter()
        self._rows: list[dict[str, Any]] = []  # records to write once their events are processed
        self._n_processed = 0  # events
        self._lock = threading.Lock()  # metrics are read by another thread

    @property
    def _no_features(self) -> set[str]:
        """Columns of the stream that are not features."""
        config = self._config
        return {name for name in (config.label, config.key, config.join, config.time) if name is not None}

    # Alarms -----------------------------------------------------------------------------------------------------------

    def follow_labels(self, times: NDArray[np.int64], n_judged: int) -> None:
        """Set the number of judged events at the first late label after each alarm.

        Parameters
        ----------
        times
            Times of the events that were judged now.
        n_judged
            Number of judged events before them.
        """
        for alarm in self.alarms if len(times) else ():
            if alarm["labelled"] is None:
                later = np.flatnonzero(times >= np.datetime64(alarm["time"][:-1], "ms").astype(np.int64))
                alarm["labelled"] = n_judged + int(later[0]) if len(later) else None

    def add_events(self, batch: Batch, history: History, *, are_late: bool) -> list[int]:
        """Add the features of events; return the position in the batch of each alarm.

        Parameters
        ----------
        batch
            The events.
        history
            Samples of the model, the last one before these events.
        are_late
            Whether labels arrive later than their events.
        """
        features = self.features
        if not features.n_events:
            self.check_names(batch.features)
            self._warn_of_names(batch.features)
        n_events, n_alarms = features.n_events, features.n_alarms
        with self._lock:
            features.learn_many(batch.features or batch.rows())
        at, judged = [], history.at[-1] if history.at else 0
        for alarm in features.alarms[max(0, len(features.alarms) - features.n_alarms + n_alarms) :]:
            at.append(alarm.event - n_events)
            found = asdict(alarm) | {"column": _name_of(alarm.column), "events": alarm.event}
            found |= {"judged": judged, "labelled": None if are_late else judged}
            self._add(batch, at[-1] - 1, relevance=_relevance(alarm.column, history), **found)
        return at

    def records(self, step: Step, drops: Iterable[AccuracyDrop]) -> dict[str, Sequence[Any]]:
        """Return the new alarms as records, each once; empty if there are none.

        Parameters
        ----------
        step
            The events that were processed last.
        drops
            Drops of the accuracy that were detected in them.
        """
        batch = step.batch
        for drop in drops:
            i = _place_of(drop.judged - step.n_judged - 1, step.predictions, batch)
            at = {"events": self._n_processed + i + 1, "since": None, "judged": drop.judged, "labelled": drop.judged}
            moved = {"before": {"accuracy": drop.before}, "after": {"accuracy": drop.after}}
            self._add(batch, i, kind="accuracy", column=None, evidence=ALPHA, relevance=None, **at, **moved)
        self._n_processed += len(batch)
        rows = sorted((row for row in self._rows if row["events"] <= self._n_processed), key=lambda row: row["events"])
        self._rows = [row for row in self._rows if row["events"] > self._n_processed]
        return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}

    def _add(self, batch: Batch, i: int, **alarm: Any) -> None:
        alarm |= {name: plain(alarm[name]) for name in ("before", "after")}
        places = {name: batch.origins[i][name] for name in batch.origins.columns}
        alarm["time"] = None if batch.times is None else _iso(int(batch.times[i]))
        kept = {name: alarm[name] for name in _FIELDS}
        self.alarms = [*self.alarms, kept][-_MOST:]
        self.counts[alarm["kind"]] += 1
        self._rows.append(places | {name: alarm[name] for name in ALARM})

    # Columns ----------------------------------------------------------------------------------------------------------

    def check_names(self, features: Features) -> None:
        """Refuse events without any column of the profile.

        Raises
        ------
        RunError
            If no column is in both.
        """
        known, (found, _) = set(self._known), _columns_of(features)
        if known and not known & found:
            what = f"it has the columns {_listed(known)}, and the events have {_listed(found)}"
            raise RunError(f"--reference {self._given}: the profile is of other data: {what}", "other data")

    def _warn_of_names(self, features: Features) -> None:
        """Say how the columns of the first events differ from those of the profile."""
        known, (found, is_complete) = set(self._known), _columns_of(features)
        if not known:
            return
        where = f"--reference {self._given}"
        if strays := known & self._no_features:
            logger.warning("%s: %s: no feature of this stream, ignored", where, _listed(strays))
        if new := found - known:
            logger.warning("%s: the profile lacks the columns %s, which are not monitored", where, _listed(new))
        if is_complete and (missing := known - found - self._no_features):
            logger.warning("%s: the events lack the columns %s of the profile", where, _listed(missing))

    def summary(self) -> dict[str, Any]:
        """Return the alarms, and the changed columns with their relevance, for JSON."""
        states = self._states()
        changed = [_name_of(state.name) for state in states if state.changed]
        found = {alarm["column"]: alarm["relevance"] for alarm in self.alarms}
        shares = [share for name in changed if (share := found.get(name)) is not None]
        return {
            "columns": len(states),
            "counts": dict(self.counts),
            "changed": changed,
            "changed_relations": self.changed_relations(),
            "dependent": [_name_of(state.name) for state in states if state.status == "dependent"],
            "changed_relevance": sum(shares) if shares else None,
            "last": [dict(alarm) for alarm in self.alarms],
        }

    def changed_relations(self) -> list[str]:
        """Return the names of the relations that differ from their reference now."""
        with self._lock:
            return [" and ".join(map(str, names)) for names in self.features.changed_relations()]

    def changed_shares(self, history: History) -> dict[Hashable, float]:
        """Return the share of changed columns in the relevance, weighted by the change.

        The weight of a column is the share of its values that moved. The largest share comes first. Columns have equal
        shares if the relevance is unknown.
        """
        states = self._states()
        by_column = _by_column(history.last_relevance) or {state.name: 1.0 for state in states}
        total = sum(by_column.values()) or 1.0
        found = {state.name: by_column.get(state.name, 0.0) * state.moved / total for state in states if state.changed}
        return dict(sorted(((name, share) for name, share in found.items() if share), key=lambda one: -one[1]))

    def final_notices(self) -> list[str]:
        """Log and return what the user should know at the end."""
        n, notices = self.features.n_events, list[str]()
        if self.profile is None and n < int(self._given):
            notices = [f"no feature was monitored: the reference is {int(self._given):,} events, and {n:,} came"]
            logger.warning("%s", notices[0])
        return notices

    def columns(self, relevance: Mapping[Hashable, float]) -> list[ColumnState]:
        """Return the states of all columns, changed ones first, sorted by relevance.

        Parameters
        ----------
        relevance
            Relevance by feature.
        """
        by_column = _by_column(relevance)
        return sorted(self._states(), key=lambda one: (not one.changed, -by_column.get(one.name, 0.0)))

    def _states(self) -> list[ColumnState]:
        with self._lock:
            return self.features.columns()

    # Saving -----------------------------------------------------------------------------------------------------------

    def state(self) -> SavedState:
        """Return the state as a JSON header and arrays."""
        return nested({"features": self.features.state()}, {"alarms": self.alarms, "counts": dict(self.counts)})

    def restore(self, state: SavedState) -> None:
        """Restore the result of `state`."""
        header, _ = state
        self.features = type(self.features).from_state(*part_of(state, "features"))
        if not all(isinstance(one, dict) and set(one) == set(_FIELDS) for one in header["alarms"]):
            raise ArchiveError("alarms that are not complete")
        self.alarms, self._n_processed = list(header["alarms"]), self.features.n_events
        self.counts = Counter({str(kind): whole(n) for kind, n in header["counts"].items()})


class MonitorStage(Stage):
    """Compare features with a reference, and record alarms.

    Parameters
    ----------
    run, monitor
        The run and its monitor.
    """

    def __init__(self, run: RunLoop, monitor: RunMonitor) -> None:
        super().__init__(run)
        self._monitor = run.parts["monitor"] = monitor

    def split(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Add the features of events before they are predicted.

        If the model refits on demand, batches are split after alarms, which request a refit.
        """
        model, report = refitting(self.run.model), self.run.report
        for batch in batches:
            at = self._monitor.add_events(batch, report.history, are_late=report.late is not None) if len(batch) else []
            if at and batch.times is not None and report.late is not None:
                report.late.estimate.change(int(batch.times[at[-1] - 1]))
            done, rest = 0, batch
            for n in sorted(set(at)) if getattr(model, "refits_on_demand", False) else ():
                head, rest = rest.cut(n - done)
                yield head
                model.refit_now()
                done = n
            yield rest

    def process(self, step: Step) -> None:
        """Pass on the new alarms as records."""
        self._monitor.follow_labels(step.judged_times, step.n_judged)
        # Late labels are of earlier events, so that drops have no event here.
        if table := self._monitor.records(step, step.drops if self.run.report.late is None else ()):
            step.tables["alerts"] = table


def read_profile(path: str) -> Profile:
    """Read the profile of a reference.

    Raises
    ------
    SetupError
        If it cannot be read or has no events.
    """
    from streamsvm.monitor import Profile

    try:
        profile = Profile.load(path)
    except (OSError, ValueError) as error:
        what = f"{path}: {error.strerror}" if isinstance(error, OSError) else error
        raise SetupError(f"--reference {what}", "reference", option="--reference") from error
    if not profile.n_events or not profile.columns:
        raise SetupError(f"--reference {path}: the profile is empty: make it of events with features", "empty")
    return profile


def _place_of(n: int, predictions: Predictions, batch: Batch) -> int:
    """Return the index in a batch of its n-th judged event, given rejected events."""
    is_known = np.fromiter((label is not None for label in predictions.batch.labels), bool)
    i = int(np.flatnonzero(is_known & (predictions.codes >= 0))[n])
    if len(predictions.batch) == len(batch):
        return i
    return [batch.origins[j] for j in range(len(batch))].index(predictions.batch.origins[i])


def _iso(ms: int) -> str:
    """Format milliseconds since 1970.

    Examples
    --------
    >>> _iso(1_700_000_000_000)
    '2023-11-14T22:13:20.000Z'
    """
    return f"{np.datetime64(ms, 'ms')}Z"


def _name_of(column: Any) -> str:
    """Return the name of a column, or of a pair of columns, as text."""
    return " and ".join(map(str, column)) if isinstance(column, tuple) else str(column)


def _by_column(relevance: Mapping[Hashable, float]) -> dict[Hashable, float]:
    """Return relevance by column, whose values may be features of their own."""
    found: Counter[Hashable] = Counter()
    for name, value in relevance.items():
        found[name[0] if isinstance(name, tuple) else name] += value  # type: ignore[assignment]
    return dict(found)


def _relevance(column: Any, history: History) -> float | None:
    """Return the share of a column in the latest relevance, None if unknown."""
    by_column = _by_column(history.last_relevance)
    parts = [by_column[name] for name in (column if isinstance(column, tuple) else (column,)) if name in by_column]
    total = sum(by_column.values())
    return sum(parts) / total if parts and total else None


def _columns_of(features: Features) -> tuple[set[Any], bool]:
    """Return the columns of some events, and whether later events have the same."""
    if isinstance(features, SparseRows):
        return set(features.indices.tolist()), False
    if isinstance(features, list):
        return {name for row in features for name in row}, False
    return set(features), True


def _listed(names: Iterable[Any]) -> str:
    """Return the first names of some columns."""
    every = sorted(names, key=lambda name: (isinstance(name, str), name))
    return listed(every, _MOST_NAMES, repr) or "none"
