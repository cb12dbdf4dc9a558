"""River's generators with drift, as streams that have a name: the same events for the same seed, everywhere.

Each stream is a few concepts of a generator, met in a stated order in stretches of equal length. Between two stretches
the concept changes at once (`width` 0), or the share of the next one rises along a sigmoid about `width` events wide; a
generator that moves by itself drifts incrementally. A concept that recurs goes on where it was left, with new events.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from river.datasets import synth

LENGTH = 20_000
SEEDS = (0, 1, 2)


class Generator(NamedTuple):
    """The concepts of a stream for a seed, the order they come in, and how wide the changes are."""

    drift: str
    concepts: Callable[[int], list[Any]]
    order: tuple[int, ...] = (0,)
    width: int = 0


def _seeds(seed: int, n: int) -> range:
    """One seed a concept, or all would draw the same numbers."""
    return range(100 * seed + 1, 100 * seed + 1 + n)


def _numbered(
    make: Callable[..., Any], name: str, numbers: tuple[int, ...], **fixed: Any
) -> Callable[[int], list[Any]]:
    """Concepts that a generator knows by number."""
    return lambda seed: [
        make(**{name: k}, **fixed, seed=own) for k, own in zip(numbers, _seeds(seed, len(numbers)), strict=True)
    ]


def _moving_rbf(seed: int) -> list[Any]:
    """Fifty centroids of four classes in twenty dimensions, ten of them on the move."""
    own = _seeds(seed, 1)[0]
    return [
        synth.RandomRBFDrift(
            seed_model=own,
            seed_sample=own,
            n_classes=4,
            n_features=20,
            n_centroids=50,
            change_speed=0.001,
            n_drift_centroids=10,
        )
    ]


def _two_rbfs(seed: int) -> list[Any]:
    return [synth.RandomRBF(seed_model=own, seed_sample=own, n_classes=3, n_features=10) for own in _seeds(seed, 2)]


def _hyperplane(seed: int) -> list[Any]:
    return [synth.Hyperplane(seed=_seeds(seed, 1)[0], n_features=10, n_drift_features=10, mag_change=0.003)]


_FUNCTION = "classification_function"
GENERATORS: dict[str, Generator] = {
    "RBF incremental": Generator("incremental", _moving_rbf),
    "RBF recurring": Generator("sudden, recurring", _two_rbfs, (0, 1) * 4),
    "hyperplane incremental": Generator("incremental", _hyperplane),
    "SEA sudden": Generator("sudden", _numbered(synth.SEA, "variant", (0, 1, 2, 3), noise=0.1), (0, 1, 2, 3)),
    "LED gradual": Generator(
        "gradual",
        _numbered(synth.LEDDrift, "n_drift_features", (0, 3, 5, 7), noise_percentage=0.1, irrelevant_features=True),
        (0, 1, 2, 3),
        1_000,
    ),
    "Agrawal sudden": Generator("sudden", _numbered(synth.Agrawal, _FUNCTION, (0, 3, 6, 2)), (0, 1, 2, 3)),
    "Agrawal gradual": Generator("gradual", _numbered(synth.Agrawal, _FUNCTION, (0, 6)), (0, 1), 2_000),
    "STAGGER recurring": Generator(
        "sudden, recurring", _numbered(synth.STAGGER, _FUNCTION, (0, 1, 2)), (0, 1, 2, 0, 1, 2, 0, 1)
    ),
    "sine recurring": Generator("sudden, recurring", _numbered(synth.Sine, _FUNCTION, (0, 1)), (0, 1, 0, 1)),
    "mixed gradual": Generator("gradual, recurring", _numbered(synth.Mixed, _FUNCTION, (0, 1)), (0, 1, 0, 1), 1_000),
}


def events(name: str, seed: int = 0, n: int = LENGTH) -> Iterator[tuple[dict[Any, Any], Any]]:
    """The first n events as River gives them. Where the concept changes does not depend on n."""
    _, make, order, width = GENERATORS[name]
    concepts = [iter(concept) for concept in make(seed)]
    rng = random.Random(seed)
    for i in range(n):
        yield next(concepts[order[_stretch(i, len(order), width, rng.random())]])


def _stretch(i: int, n_stretches: int, width: int, draw: float) -> int:
    """The stretch event i belongs to."""
    length = LENGTH / n_stretches
    if not width:
        return min(int(i / length), n_stretches - 1)
    change = min(max(round(i / length), 1), n_stretches - 1)
    # Far from the change the sigmoid is 0 or 1; the exponent is bounded so that it can be taken.
    past = 1.0 / (1.0 + math.exp(min(4.0 * (change * length - i) / width, 700.0)))
    return change if draw < past else change - 1


def load(name: str, seed: int = 0, n: int = LENGTH) -> tuple[dict[str, NDArray[Any]], list[Any]]:
    """The first n events as `simulations.data.load_stream` gives streams: a table of columns, and the labels."""
    rows, labels = zip(*islice(events(name, seed, n), n), strict=True)
    table = {str(key): np.array([row[key] for row in rows]) for key in rows[0]}
    return table, [label.item() if isinstance(label, np.generic) else label for label in labels]
