"""River's stream generators as sources, with concept drift composed of a list of positions and a width."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import itertools
import random
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from connectors.events import Batch, ConnectorError, Origins, Position, Source
from connectors.options import Options
from connectors.registry import Connector, register


class _Family(NamedTuple):
    """A generator of `river.datasets.synth`, and what makes one concept of it another."""

    generator: str
    concept: str | None = None
    n_concepts: int = 1
    seeds: tuple[str, ...] = ("seed",)
    fixed: tuple[tuple[str, Any], ...] = ()


_Generated: TypeAlias = "Iterator[tuple[dict[Any, Any], Any]]"

_SCHEME = "synthetic:"
_SYNTH = "river.datasets.synth"
_SEED = "seed"
"""The concept of a family in which every seed is another one."""

FAMILIES = {
    "agrawal": _Family("Agrawal", "classification_function", 10),
    "hyperplane": _Family("Hyperplane", _SEED),
    "led": _Family("LEDDrift", "n_drift_features", 8, fixed=(("irrelevant_features", True),)),
    "mixed": _Family("Mixed", "classification_function", 2),
    "rbf": _Family("RandomRBF", _SEED, seeds=("seed_model", "seed_sample")),
    "rbfdrift": _Family("RandomRBFDrift", _SEED, seeds=("seed_model", "seed_sample")),
    "sea": _Family("SEA", "variant", 4),
    "sine": _Family("Sine", "classification_function", 4),
    "stagger": _Family("STAGGER", "classification_function", 3),
    "tree": _Family("RandomTree", _SEED, seeds=("seed_tree", "seed_sample")),
    "waveform": _Family("Waveform"),
}
DEMO = {"n": 40_000, "drift": "15000,30000", "width": 500, "n_features": 10, "noise_percentage": 0.02}
"""What ``synthetic:demo`` sets: three hyperplanes, one after the other."""


class SyntheticSource(Source):
    """Generated events, the same for the same options, so that resuming generates anew and skips.

    At each position of `drift` the stream turns to the next concept: at once, or with `width` so that the share of the
    new concept rises evenly from none to all within that many events around the position.
    """

    def __init__(self, name: str, options: Options) -> None:
        self.name = f"{_SCHEME}{name}"
        given = options.rest()
        options = Options(self.name, DEMO | given if name == "demo" else given)
        family = FAMILIES.get("hyperplane" if name == "demo" else name)
        if family is None:
            raise ConnectorError(f"{self.name}: unknown stream; there are demo, {', '.join(FAMILIES)}")
        self._n = options.integer("n", 100_000, 1)
        self._seed = options.integer("seed", 1)
        self._width = options.integer("width", 0)
        self._batch_size = options.integer("batch_size", 1024, 1)
        self._drifts = self._positions(options.names("drift"))
        if self._drifts and family.concept is None:
            raise ConnectorError(f"{self.name}: has one concept only, so `drift` cannot be had")
        self._family = family
        self._parameters = self._checked(options)
        self._made_of = repr((name, self._n, self._seed, self._width, self._drifts, sorted(self._parameters.items())))
        self._event = 0
        self._seek(0)

    def _positions(self, given: list[str]) -> list[int]:
        try:
            return sorted(map(int, given))
        except ValueError:
            raise ConnectorError(
                f"{self.name}: option `drift` must be event numbers, got {','.join(given)!r}"
            ) from None

    def _checked(self, options: Options) -> dict[str, Any]:
        """The options that are parameters of the generator."""
        known = set(inspect.signature(_generator(self._family.generator)).parameters)
        parameters = {
            name: _literal(options.text(name))
            for name in sorted(known - set(self._family.seeds) - dict(self._family.fixed).keys())
            if options.has(name)
        }
        options.allow(known - set(self._family.seeds))
        options.finish()
        return parameters

    def _concept(self, k: int) -> _Generated:
        """The generator of the k-th concept. Each has its own seed, or all would draw the same numbers."""
        family, parameters = self._family, dict(self._family.fixed) | self._parameters
        if family.n_concepts > 1 and family.concept is not None:
            first = parameters.get(family.concept, 0)
            parameters[family.concept] = (first + k) % family.n_concepts if k else first
        parameters |= dict.fromkeys(family.seeds, self._seed + k)
        try:
            return iter(_generator(family.generator)(**parameters))
        except (TypeError, ValueError) as error:
            raise ConnectorError(f"{self.name}: {error}") from error

    def _events(self, concepts: list[_Generated]) -> _Generated:
        rng = random.Random(self._seed)
        for i in range(self._n):
            draw = rng.random()
            yield next(concepts[sum(self._share(i, drift) > draw for drift in self._drifts)])

    def _share(self, i: int, drift: int) -> float:
        """The probability that event i is past a drift."""
        return float(i >= drift) if not self._width else (i - drift) / self._width + 0.5

    def __iter__(self) -> Iterator[Batch]:
        while rows := list(itertools.islice(self._stream, self._batch_size)):
            start, self._event = self._event, self._event + len(rows)
            table = {str(name): np.array([float(x[name]) for x, _ in rows]) for name in rows[0][0]}
            labels = [y.item() if isinstance(y, np.generic) else y for _, y in rows]
            origins = Origins({"stream": self.name}, {"event": range(start, self._event)})
            yield Batch(table, labels, origins, self.position)

    @property
    def position(self) -> Position:
        """The number of events handed out, and what the stream is made of."""
        return {"event": self._event, "stream": self._made_of}

    @property
    def fraction(self) -> float | None:
        """The share of `n` handed out."""
        return self._event / self._n

    def seek(self, position: Position) -> None:
        """Generate anew and skip what was handed out."""
        if position.get("stream") != self._made_of:
            raise ConnectorError(f"{self.name}: was made with other options before: {position.get('stream')}")
        self._seek(int(position["event"]))

    def _seek(self, event: int) -> None:
        self._event = event
        concepts = [self._concept(k) for k in range(len(self._drifts) + 1)]
        self._stream: _Generated = itertools.islice(self._events(concepts), event, None)

    def close(self) -> None:
        """Nothing to let go of."""


def _generator(name: str) -> Any:
    return getattr(sys.modules.get(_SYNTH) or _import_generators(), name)


def _import_generators() -> ModuleType:
    """River's generators, without the readers of data sets in the package around them.

    Those bring scikit-learn and pandas where they are installed, a second and more that no generator has a use for. So
    the package is a bare one for as long as the generators are imported; whoever imports it later gets all of it.
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


def _literal(text: str | None) -> Any:
    """A number or truth value as Python writes it, else the text."""
    try:
        return ast.literal_eval(str(text))
    except (ValueError, SyntaxError):
        return text


def _open_source(path: str, options: Options) -> Source:
    return SyntheticSource(path.removeprefix(_SCHEME), options)


register(Connector("synthetic", _open_source, scheme=_SCHEME, shown=f"{_SCHEME}NAME", labelled=True))
