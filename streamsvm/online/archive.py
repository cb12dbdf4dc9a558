"""What a learner's archive holds, and what is checked of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.state import State
from streamsvm.features.scaler import MOST_EVENTS
from streamsvm.features.space import FeatureSpace
from streamsvm.models import ArchiveError
from streamsvm.models.archive import decode_label, encode_label


def fill(target: NDArray[Any], source: NDArray[Any], name: str) -> None:
    """Take over an array, which must be of the same shape and type."""
    if target.shape != source.shape or target.dtype != source.dtype:
        raise ArchiveError(
            f"array {name!r} has shape {source.shape} and type {source.dtype}, not {target.shape} and {target.dtype}"
        )
    target[...] = source


def check_statistics(rows: State, space: FeatureSpace) -> None:
    """Refuse statistics from an archive that no stream can have left.

    Each number is known to be finite and within its own bounds; what is checked here is what they say together.
    """
    count, present = rows.count, rows.present
    # `a > b` of two conditions: the first holds and the second does not.
    if np.logical_or.reduce(((present > 0.0) > (count >= 1.0)) | ((rows.centred > 0.0) > (present >= 1.0))):
        raise ArchiveError(f"statistics hold values that are not between 1 and {MOST_EVENTS:g}")
    if np.logical_or.reduce(present < rows.began):
        raise ArchiveError(f"statistics hold values that are not between 0 and {MOST_EVENTS:g}")
    n, due = len(space), rows.due
    if (due[:n] < 0.0).tolist() != space.is_indicator or np.logical_or.reduce(due[n:] != 0.0):
        raise ArchiveError("statistics take other columns for indicators than the header does")
    check_ranks(rows, rows)


def check_ranks(rows: State, by: State) -> None:
    """Refuse recent values from an archive that columns with these statistics cannot have left."""
    n, width = rows.ranks.shape
    if not rows.ranks.size:
        return
    is_held = np.arange(width) < np.minimum(by.present - by.began, rows.window)[:n, None]
    ring, ranks = (np.where(is_held, values, math.inf) for values in (rows.ring, rows.ranks))
    alike = (np.sort(ring, axis=1) == ranks).all(axis=1)
    if not alike.all():
        raise ArchiveError(f"the sorted values of column {int(alike.argmin())} are not its values")


def check_bounds(name: str, values: NDArray[Any], low: float, high: float) -> None:
    """Refuse values of an archive beyond their bounds."""
    # States of keys are checked each time they are loaded: of few values, the extremes are found in half the time.
    if values.size and not (
        low <= np.minimum.reduce(values, axis=None) and np.maximum.reduce(values, axis=None) <= high
    ):
        raise ArchiveError(f"{name} hold values that are not between {low:g} and {high:g}")


def encode_param(value: Any) -> Any:
    """A parameter as JSON can have it."""
    if isinstance(value, dict):
        return {"dict": [[encode_label(k), encode_label(v)] for k, v in value.items()]}
    return encode_label(value)


def decode_param(value: Any) -> Any:
    """What `encode_param` was given."""
    if isinstance(value, dict) and set(value) == {"dict"}:
        return {decode_label(k): decode_label(v) for k, v in value["dict"]}
    return decode_label(value)
