"""A stream with drift, described in TOML.

    title = "Two radial basis networks alternate"
    kind = "recurring"                      # category; any word
    events = 20_000
    generator = "rbf"                       # one of FAMILIES, or `source = "URL"` of any stream with labels
    parameters = { n_classes = 3 }          # of the generator
    schedule = [
        { concept = 0 },
        { concept = 1, at = 5_000 },                    # abrupt
        { concept = 0, at = 10_000, width = 1_000 },    # gradual: a sigmoid about 1,000 events wide
    ]

    [[disturbance]]                         # any number; see `connectors.synthetic.disturbances`
    kind = "scale"
    at = 15_000
    features = ["0", "1"]
    factor = 100.0

A concept is the generator's number of a concept, such as SEA's `variant`. For other generators it is any number, and
each concept has its own seed. A recurring concept continues its sequence of events. `n` of the command line and
`Scenario.stretched` scale all positions and widths.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import random
import sys
import tomllib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from connectors.errors import ConnectorError
from connectors.synthetic import disturbances
from connectors.synthetic.disturbances import Disturbance, Draw, Event, UndrawableError, share
from connectors.synthetic.machine import Machine

Rows: TypeAlias = "Iterator[tuple[dict[Any, Any], Any]]"

_SYNTH = "river.datasets.synth"


FOLDER = Path(__file__).parent / "scenarios"
_EVENTS = 100_000


class Family(NamedTuple):
    """A generator: `Machine`, or one of `river.datasets.synth`.

    Parameters
    ----------
    generator
        Name of its class.
    concept
        The parameter that numbers its concepts; None if each seed is another concept.
    n_concepts
        Number of concepts; 0 for any number.
    seeds
        Parameters that are seeds.
    fixed
        Parameters with fixed values.
    moving
        Parameters that make the generator drift continuously if they are not zero.
    """

    generator: str
    concept: str | None = None
    n_concepts: int = 0
    seeds: tuple[str, ...] = ("seed",)
    fixed: tuple[tuple[str, Any], ...] = ()
    moving: tuple[str, ...] = ()

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters that can be set."""
        known = set(inspect.signature(_generator(self.generator)).parameters)
        return sorted(known - set(self.seeds) - dict(self.fixed).keys())

    def begin(self, name: str, concept: int, seed: int, parameters: Mapping[str, Any]) -> Rows:
        """Return the rows of a concept; `name` is for messages."""
        given = dict(self.fixed) | dict(parameters) | dict.fromkeys(self.seeds, seed)
        if self.concept is not None:
            given[self.concept] = concept
        try:
            return iter(_generator(self.generator)(**given))
        except (TypeError, ValueError) as error:
            raise ConnectorError(f"{name}: {error}") from error


FAMILIES = {
    "agrawal": Family("Agrawal", "classification_function", 10),
    "hyperplane": Family("Hyperplane", moving=("mag_change",)),
    "led": Family("LEDDrift", "n_drift_features", 8, fixed=(("irrelevant_features", True),)),
    "machine": Family("Machine", "fault", 3),
    "mixed": Family("Mixed", "classification_function", 2),
    "rbf": Family("RandomRBF", seeds=("seed_model", "seed_sample")),
    "rbfdrift": Family("RandomRBFDrift", seeds=("seed_model", "seed_sample"), moving=("change_speed",)),
    "sea": Family("SEA", "variant", 4),
    "sine": Family("Sine", "classification_function", 4),
    "stagger": Family("STAGGER", "classification_function", 3),
    "tree": Family("RandomTree", seeds=("seed_tree", "seed_sample")),
    "waveform": Family("Waveform", n_concepts=1),
}


def _generator(name: str) -> Any:
    if name == Machine.__name__:
        return Machine
    return getattr(sys.modules.get(_SYNTH) or _import_generators(), name)


def _import_generators() -> ModuleType:
    """Import River's generators without the readers of data sets in the same package.

    The readers import scikit-learn and pandas, which takes more than a second. An empty package replaces the original
    during the import, and later imports get the complete package.
    """
    package = _SYNTH.rpartition(".")[0]
    spec = None if package in sys.modules else importlib.util.find_spec(package)
    if spec is None:
        return importlib.import_module(_SYNTH)
    sys.modules[package] = bare = importlib.util.module_from_spec(spec)
    try:
        bare.base = importlib.import_module(f"{package}.base")  # type: ignore[attr-defined]
        return importlib.import_module(_SYNTH)
    finally:
        del sys.modules[package]


class Stage(NamedTuple):
    """A concept, the event at which it starts, and the width of the change in events."""

    concept: int
    at: int = 0
    width: int = 0


class Drift(NamedTuple):
    """A true drift point: its event, its width in events, and what changes."""

    at: int
    width: int
    what: str


@dataclass(frozen=True)
class Scenario:
    """A stream with drift.

    Parameters
    ----------
    name, title, kind
        Name, description and category.
    events
        Number of events.
    generator, source
        Origin of the events: a name of FAMILIES, or a URL for `connectors.open_source`.
    parameters
        Parameters of the generator.
    schedule
        The concepts in order.
    disturbance
        Disturbances, in the order in which they apply.

    Examples
    --------
    >>> scenario = find("sea-sudden").stretched(1_000)
    >>> [drift.at for drift in scenario.drifts], len(list(scenario.draw(seed=1)))
    ([250, 500, 750], 1000)
    """

    name: str
    title: str = ""
    kind: str = ""
    events: int = _EVENTS
    generator: str = ""
    source: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    schedule: tuple[Stage, ...] = (Stage(0),)
    disturbance: tuple[Disturbance, ...] = ()

    def __post_init__(self) -> None:
        if wrong := self._wrong():
            raise ConnectorError(f"{self.url}: {wrong}")

    def __hash__(self) -> int:
        return hash(repr(self))

    @property
    def url(self) -> str:
        """The URL that opens the scenario as a source."""
        return f"synthetic:{self.name}"

    def _wrong(self) -> str:
        if bool(self.generator) == bool(self.source):
            return "needs a `generator` or a `source`"
        if not isinstance(self.events, int) or self.events < 1:
            return f"`events` must be a whole number of at least 1, got {self.events!r}"
        if not self.schedule or self.schedule[0].at or any(a.at >= b.at for a, b in pairwise(self.schedule)):
            return "the concepts of `schedule` must be in order, the first at 0"
        if any(stage.width < 0 for stage in self.schedule):
            return "`width` must not be negative"
        if self.source:
            return (
                "a `source` has one concept, and no `parameters`" if len(self.schedule) > 1 or self.parameters else ""
            )
        return self._wrong_concepts()

    def _wrong_concepts(self) -> str:
        if self.generator not in FAMILIES:
            return f"unknown generator {self.generator!r}; available are {', '.join(FAMILIES)}"
        if self.family.n_concepts == 1 and len(self.schedule) > 1:
            return f"{self.generator} has only one concept"
        for stage in self.schedule:
            if stage.concept < 0 or 0 < self.family.n_concepts <= stage.concept:
                return f"{self.generator} has no concept {stage.concept}, but 0 to {self.family.n_concepts - 1}"
        unknown = [name for name in self.parameters if name not in self.family.parameters]
        if unknown:
            return f"{self.generator} has no parameter `{unknown[0]}`; allowed are {', '.join(self.family.parameters)}"
        return ""

    @property
    def family(self) -> Family:
        """The generator and its parameters."""
        return FAMILIES[self.generator]

    @property
    def moving(self) -> bool:
        """Whether the generator drifts continuously."""
        return bool(self.generator) and any(self.parameters.get(name) for name in self.family.moving)

    @property
    def drifts(self) -> list[Drift]:
        """The drift points in order."""
        found = [Drift(stage.at, stage.width, "concept") for stage in self.schedule[1:]]
        for each in self.disturbance:
            found += [Drift(at, each.width, each.kind()) for at in (each.at, each.until) if at]
        return sorted(drift for drift in found if drift.at < self.events)

    def stretched(self, n: int) -> Scenario:
        """Scale the scenario to n events."""
        factor = n / self.events
        return replace(
            self,
            events=n,
            schedule=tuple(Stage(c, round(at * factor), round(width * factor)) for c, at, width in self.schedule),
            disturbance=tuple(each.stretched(factor) for each in self.disturbance),
        )

    def draw(self, seed: int = 0) -> Iterator[Event]:
        """Iterate over the events; equal seeds give equal events."""
        draw = self._from_source() if self.source else self._from_generator(seed)
        for k, disturbance in enumerate(self.disturbance):
            draw = disturbance.over(draw, random.Random(f"{seed} {k}"))
        return self._drawn(draw)

    def _drawn(self, draw: Draw) -> Iterator[Event]:
        try:
            for i in range(self.events):
                yield draw(i)
        except StopIteration:
            return  # a source may have fewer events
        except UndrawableError as error:
            raise ConnectorError(f"{self.url}: {error}", "not drawn") from error

    def _from_generator(self, seed: int) -> Draw:
        numbers = dict.fromkeys(stage.concept for stage in self.schedule)
        # Each concept has its own seed, otherwise all would draw the same numbers.
        concepts = {
            number: self.family.begin(self.url, number, 100 * seed + 1 + k, self.parameters)
            for k, number in enumerate(numbers)
        }
        rng = random.Random(seed)

        def draw(i: int) -> Event:
            x, y = next(concepts[self._concept(i, rng.random())])
            label = y.item() if isinstance(y, np.generic) else y
            return Event({str(name): value for name, value in x.items()}, label, label)

        return draw

    def _concept(self, i: int, chance: float) -> int:
        """Draw the concept of event i: the one before or after the nearest change."""
        if len(self.schedule) == 1:
            return self.schedule[0].concept
        k = bisect_right(self._between, i)
        change = self.schedule[k + 1]
        return change.concept if chance < share(i, change.at, change.width) else self.schedule[k].concept

    @cached_property
    def _between(self) -> list[float]:
        """The midpoints between consecutive changes."""
        return [(a.at + b.at) / 2 for a, b in pairwise(self.schedule[1:])]

    def _from_source(self) -> Draw:
        from connectors.registry import open_source

        source = open_source(self.source)
        rows = ((x, y) for batch in source for x, y in zip(batch.rows(), batch.labels, strict=True))

        def draw(i: int) -> Event:
            x, y = next(rows)
            return Event(x, y, y)

        return draw


def find(name: str) -> Scenario:
    """Find a scenario by name or file.

    The name of a generator gives a scenario without drift.

    Raises
    ------
    ConnectorError
        If there is none, or its description is invalid.
    """
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if path.is_file():
        return read(path)
    if name in FAMILIES:
        return Scenario(name, generator=name)
    if name.endswith(".toml"):
        raise ConnectorError(f"synthetic:{name}: no such file")
    raise ConnectorError(f"synthetic:{name}: unknown stream; available are {', '.join([*names(), *FAMILIES])}")


def names() -> list[str]:
    """Return the names of the included scenarios."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read(path: Path) -> Scenario:
    """Read a scenario from a file."""
    name = path.stem if path.parent == FOLDER else str(path)
    url = f"synthetic:{name}"
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConnectorError(f"{url}: {error}") from error
    allowed = list(Scenario.__dataclass_fields__)[1:]
    for key in given:
        if key not in allowed:
            raise ConnectorError(f"{url}: unknown key `{key}`; a scenario has {', '.join(allowed)}")
    if "schedule" in given:
        given["schedule"] = _stages(url, given["schedule"])
    given["disturbance"] = tuple(disturbances.read(url, each) for each in given.get("disturbance", ()))
    return Scenario(name, **given)


def _stages(url: str, given: Any) -> tuple[Stage, ...]:
    try:
        stages = tuple(Stage(**each) for each in given)
    except TypeError as error:
        raise ConnectorError(f"{url}: a stage of `schedule` has `concept`, `at` and `width`, got {given}") from error
    if not all(type(value) is int for stage in stages for value in stage):
        raise ConnectorError(f"{url}: `concept`, `at` and `width` of `schedule` must be whole numbers")
    return stages


def in_turn(family: Family, first: int, at: list[int], width: int) -> tuple[Stage, ...]:
    """Return a schedule that starts the next concept at each position of `at`."""
    n = family.n_concepts or first + len(at) + 1
    return (Stage(first), *(Stage((first + k) % n, i, width) for k, i in enumerate(at, start=1)))
