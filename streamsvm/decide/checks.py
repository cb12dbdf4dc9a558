"""Checks of what is asked for, without what it takes to do it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.parameters import check_between, check_choice, check_class_weight, check_number

KINDS = ("share", "recall", "precision")
"""What may be wanted of alarms."""
LARGEST = 1e9
"""The largest cost, and weight."""


def check_alarms(kind: str, wanted: float) -> None:
    """Refuse what are no alarms.

    Parameters
    ----------
    kind, wanted
        As `Alarms` has them.

    Raises
    ------
    ValueError
        Where there is no such kind, or the share is not between 0 and 1.
    """
    check_choice("kind", kind, KINDS)
    check_between("wanted", wanted, 0.0, 1.0)


def check_costs(cost: Any, class_weight: Any, abstain: Any) -> dict[Hashable, dict[Hashable, float]]:
    """Refuse what are no costs; gives them as a table by label.

    Parameters
    ----------
    cost, class_weight, abstain
        As `Costs` has them.

    Raises
    ------
    TypeError, ValueError
        Where one of them is none.
    """
    table = _table(cost)
    check_class_weight(class_weight, LARGEST)
    if abstain is not None:
        check_number("abstain", abstain, 0.0, LARGEST)
    return table


def without_frame(cost: Any) -> Any:
    """Costs as they are; those in a frame, with labels for its rows and columns, as a table by label."""
    is_frame = all(hasattr(cost, name) for name in ("to_dict", "index", "columns"))
    return cost.to_dict("index") if is_frame else cost


def _table(cost: Any) -> dict[Hashable, dict[Hashable, float]]:
    """Costs by label and decision."""
    if cost is None:
        return {}
    cost = without_frame(cost)
    if isinstance(cost, Mapping):
        table = {true: dict(row) if isinstance(row, Mapping) else row for true, row in cost.items()}
        if not all(isinstance(row, dict) for row in table.values()):
            raise TypeError(f"`cost` must be a table by label, {{true: {{decided: cost}}}}, or a matrix, got {cost!r}")
    else:
        try:
            matrix: NDArray[Any] = np.asarray(cost, float)
        except (TypeError, ValueError) as error:
            raise TypeError(f"`cost` must be a table by label or a matrix of numbers, got {cost!r}") from error
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"`cost` must be a square matrix, got shape {matrix.shape}")
        table = {y: dict(enumerate(row)) for y, row in enumerate(matrix.tolist())}
    for true, row in table.items():
        for decided, value in row.items():
            check_number(f"cost[{true!r}][{decided!r}]", value, 0.0, LARGEST)
    return table
