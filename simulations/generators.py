"""The ten generated streams of the benchmarks, from `connectors.synthetic`."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.synthetic import Scenario, find

LENGTH = 20_000
SEEDS = (0, 1, 2)
GENERATORS: dict[str, Scenario] = {
    name: find(name.lower().replace(" ", "-"))
    for name in (
        "RBF incremental",
        "RBF recurring",
        "hyperplane incremental",
        "SEA sudden",
        "LED gradual",
        "Agrawal sudden",
        "Agrawal gradual",
        "STAGGER recurring",
        "sine recurring",
        "mixed gradual",
    )
}


def load(name: str, seed: int = 0, n: int = LENGTH) -> tuple[dict[str, NDArray[Any]], list[Any]]:
    """Generate the first n events as a table of columns, and their labels.

    The positions of drifts do not depend on n.
    """
    events = list(islice(GENERATORS[name].draw(seed), n))
    return {key: np.array([event.x[key] for event in events]) for key in events[0].x}, [event.y for event in events]
