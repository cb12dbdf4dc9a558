"""River's generators by short names, and the parameter that selects a concept."""

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
