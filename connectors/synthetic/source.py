"""Scenarios as sources: `synthetic:NAME`."""

from __future__ import annotations

import ast
import itertools
import logging
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from connectors.errors import ConnectorError, OptionError
from connectors.events import Batch, Features, Origins, Position
from connectors.options import Options
from connectors.streams import Source
from connectors.synthetic.disturbances import Event, Late
from connectors.synthetic.scenario import Scenario, find, in_turn

SCHEME = "synthetic:"
_SKIPPED_AT_ONCE = 4096
_TOLD_EVERY_S = 5.0

logger = logging.getLogger("connectors")


class SyntheticSource(Source):
    """The events of a scenario.

    Equal seeds give equal events, so resuming generates the events again and skips those that were read.

    Parameters
    ----------
    scenario
        The scenario. Delayed labels are rejected, because a single source cannot represent them.
    seed
        Seed of the random numbers.
    batch_size
        Number of events per batch.
    """

    def __init__(self, scenario: Scenario, seed: int = 0, batch_size: int = 1024) -> None:
        self.name = scenario.url
        if any(isinstance(each, Late) for each in scenario.disturbance):
            raise ConnectorError(f"{self.name}: its labels are late, which a single source cannot represent")
        self.scenario, self._seed, self._batch_size = scenario, seed, batch_size
        self._made_of = repr((scenario, seed))
        self._event: int = 0
        self._stream: Iterator[Event] = scenario.draw(seed)

    def __iter__(self) -> Iterator[Batch]:
        while events := list(itertools.islice(self._stream, self._batch_size)):
            start, self._event = self._event, self._event + len(events)
            origins = Origins({"stream": self.name}, {"event": range(start, self._event)})
            yield Batch(self._features(events), [event.y for event in events], origins, self.position)

    def _features(self, events: list[Event]) -> Features:
        """Return numeric columns for a generator, and dicts for a source."""
        if self.scenario.source:
            return [event.x for event in events]
        names = dict.fromkeys(name for event in events for name in event.x)
        return {name: np.array([float(event.x.get(name, np.nan)) for event in events]) for name in names}

    @property
    def position(self) -> Position:
        """The number of events read, and a description of the stream."""
        return {"event": self._event, "stream": self._made_of}

    @property
    def fraction(self) -> float | None:
        """The share of the events read."""
        return self._event / self.scenario.events

    def seek(self, position: Position) -> None:
        """Generate the events again, and skip those that were read.

        The log reports the progress every few seconds.
        """
        if position.get("stream") != self._made_of:
            what = f"was made with other options before: {position.get('stream')}"
            raise ConnectorError(f"{self.name}: {what}", "another")
        self._event, self._stream = 0, self.scenario.draw(self._seed)
        end, told_at = int(position["event"]), time.monotonic()
        while self._event < end:
            n = min(_SKIPPED_AT_ONCE, end - self._event)
            deque(itertools.islice(self._stream, n), maxlen=0)
            self._event += n
            if time.monotonic() - told_at >= _TOLD_EVERY_S:
                told_at = time.monotonic()
                logger.info("%s: skipping to event %s, %d%% done", self.name, f"{end:,}", 100 * self._event // end)

    def close(self) -> None:
        """Do nothing, because no resource is open."""


def open_synthetic(path: str, options: Options) -> Source:
    """Open a scenario by name or file, with the options of the URL."""
    scenario = find(path.removeprefix(SCHEME))
    seed, batch_size = options.integer("seed", 0), options.integer("batch_size", 1024, 1)
    scenario = scenario.stretched(options.integer("n", scenario.events, 1))
    if scenario.generator:
        scenario = _generator(scenario, options)
    options.finish()
    return SyntheticSource(scenario, seed, batch_size)


def _generator(scenario: Scenario, options: Options) -> Scenario:
    """Apply other parameters, and start the next concept at each position of `drift`."""
    family = scenario.family
    given = {name: _literal(options.text(name)) for name in family.parameters if options.has(name)}
    options.allow(family.parameters)
    first = given.pop(family.concept, None) if family.concept else None
    wide, drift, width = options.has("width"), list(filter(None, options.names("drift"))), options.integer("width", 0)
    schedule = scenario.schedule
    if wide:
        schedule = tuple(stage._replace(width=width if stage.at else 0) for stage in schedule)
    if drift or first is not None:
        first = schedule[0].concept if first is None else first
        if not isinstance(first, int):
            raise ConnectorError(f"{scenario.url}: `{family.concept}` must be a number, got {first!r}")
        schedule = in_turn(family, first, _positions(scenario.url, drift), width)
    return replace(scenario, parameters={**scenario.parameters, **given}, schedule=schedule)


def _positions(name: str, given: list[str]) -> list[int]:
    try:
        return sorted(map(int, given))
    except ValueError:
        raise OptionError(name, "drift", f"must be event numbers, got {','.join(given)!r}") from None


def _literal(text: str | None) -> Any:
    """Parse a Python literal; other text remains a string."""
    try:
        return ast.literal_eval(str(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
