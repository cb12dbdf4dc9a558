"""``streamsvm profile``: write the distributions of features as a reference."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

from connectors.events import Batch, Rejected
from connectors.registry import is_place
from streamsvm.cli.terminal import complain
from streamsvm.monitor import FeatureMonitor, Profile
from streamsvm.names import listed
from streamsvm.run.checks import check_distinct, check_source, check_writable
from streamsvm.run.config import RunConfig
from streamsvm.run.errors import RunError, SetupError, writing
from streamsvm.run.start import source_of

LEAST_EVENTS = 256
"""Least number of events of a profile."""
_LONGEST = 10**9  # events
_FIRST = 8192  # events after which a stream is not short
_MOST_NAMES = 10


def main(config: RunConfig, _started: float) -> int:
    """Read the stream, write the profile, and return the exit code."""
    config.validate()
    stream, path = ReadStream(config), str(config.out)
    profile = profile_of(stream)
    with writing(f"--out {path}"):
        profile.save(path)
    rejected = f", {stream.n_rejected:,} records rejected" if stream.n_rejected else ""
    if not config.quiet:
        print(f"{os.path.normpath(path)}: {len(profile.columns):,} features of {stream.n_events:,} events{rejected}")
        if dependent := [column.name for column in profile.columns if not column.is_compared]:
            why = "dates, identifiers, or values that depend on each other for as long as these events"
            print(f"  values not compared: {listed(dependent, _MOST_NAMES)} ({why})")
    if stream.example is None or stream.n_rejected <= stream.n_events:
        return 0
    return complain(f"more than half of the records were rejected, the first one: {stream.example.reason}", 3)


def check(config: RunConfig) -> None:
    """Refuse inconsistent options, before any stream is opened.

    Raises
    ------
    SetupError
        If the stream is missing, or the profile cannot be written.
    """
    check_source(config)
    path = config.out or "profile.json"
    if not is_place(path):
        raise SetupError(f"--out {path}: must be a file", option="--out")
    check_writable("--out", path)
    check_distinct(config)
    if os.path.exists(path) and os.path.getsize(path) and not config.overwrite:
        try:
            Profile.load(path)
        except ValueError as error:
            what = f"--out {path}: exists and is no profile: --set overwrite=true replaces it"
            raise SetupError(what, option="--out") from error


@dataclass
class ReadStream:
    """Events of a stream, with counts.

    Parameters
    ----------
    config
        Settings of the stream.

    Attributes
    ----------
    n_events, n_rejected, example
        Number of events and of rejected records, and the first one of these.
    """

    config: RunConfig
    n_events: int = 0
    n_rejected: int = 0
    example: Rejected | None = field(default=None)

    def batches(self) -> Iterator[Batch]:
        """Read the stream once, up to `max_events`."""
        most = self.config.max_events or math.inf
        with contextlib.closing(source_of(self.config)) as source:
            for batch in source:
                self.n_rejected += len(batch.rejected)
                self.example = self.example or next(iter(batch.rejected), None)
                part = batch if self.n_events + len(batch) <= most else batch.part(0, int(most) - self.n_events)
                self.n_events += len(part)
                yield part
                if self.n_events >= most:
                    return


def profile_of(stream: ReadStream) -> Profile:
    """Return the profile of the features of a stream, which is read once.

    Parameters
    ----------
    stream
        The stream.

    Raises
    ------
    RunError
        If it has too few events, or no features.
    """
    batches, first = stream.batches(), list[Batch]()
    while stream.n_events < _FIRST and (batch := next(batches, None)) is not None:
        first.append(batch)
    name = stream.config.urls["source"].path
    if stream.n_events < LEAST_EVENTS:
        what = f"{name}: {stream.n_events} events, and a profile needs at least {LEAST_EVENTS}"
        raise RunError(what if stream.example is None else f"{what}; rejected: {stream.example.reason}", "too short")
    monitor = FeatureMonitor(reference=stream.n_events if stream.n_events < _FIRST else _LONGEST)
    for batch in chain(first, batches):
        monitor.learn_many(batch.features or batch.rows())
    profile = monitor.profile()
    if not profile.columns:
        raise RunError(f"{name}: no feature has a value: nothing to profile", "no features")
    return profile
