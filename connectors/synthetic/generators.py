"""River's generators by short names, each with what makes one concept of it another."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

from connectors.errors import ConnectorError

Rows: TypeAlias = "Iterator[tuple[dict[Any, Any], Any]]"

_SYNTH = "river.datasets.synth"


class Family(NamedTuple):
    """A generator of `river.datasets.synth`.

    Parameters
    ----------
    generator
        Its class there.
    concept
        The parameter that numbers its concepts; None where another seed is another concept.
    n_concepts
        How many of them there are; 0 for any number, 1 where nothing makes a concept another.
    seeds
        Its parameters that are seeds.
    fixed
        Parameters that are never others.
    moving
        Parameters that let it drift by itself where they are not zero.
    """

    generator: str
    concept: str | None = None
    n_concepts: int = 0
    seeds: tuple[str, ...] = ("seed",)
    fixed: tuple[tuple[str, Any], ...] = ()
    moving: tuple[str, ...] = ()

    @property
    def parameters(self) -> list[str]:
        """The names that may be given."""
        known = set(inspect.signature(_generator(self.generator)).parameters)
        return sorted(known - set(self.seeds) - dict(self.fixed).keys())

    def begin(self, name: str, concept: int, seed: int, parameters: Mapping[str, Any]) -> Rows:
        """The rows of a concept; `name` is for messages."""
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
