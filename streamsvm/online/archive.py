"""Encoding and validation of the archives of learners."""

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
    """Copy an array into another of equal shape and type."""
    if target.shape != source.shape or target.dtype != source.dtype:
        raise ArchiveError(
            f"array {name!r} has shape {source.shape} and type {source.dtype}, not {target.shape} and {target.dtype}"
        )
    target[...] = source


def check_statistics(rows: State, space: FeatureSpace) -> None:
    """Refuse inconsistent statistics of an archive.

    The bounds of single values have been checked; this checks relations between values.
    """
    count, present = rows.count, rows.present
    # For booleans, `a > b` is `a and not b`.
    if np.logical_or.reduce(((present > 0.0) > (count >= 1.0)) | ((rows.centred > 0.0) > (present >= 1.0))):
        raise ArchiveError(f"statistics hold values that are not between 1 and {MOST_EVENTS:g}")
    if np.logical_or.reduce(present < rows.began):
        raise ArchiveError(f"statistics hold values that are not between 0 and {MOST_EVENTS:g}")
    n, due = len(space), rows.due
    if (due[:n] < 0.0).tolist() != space.is_indicator or np.logical_or.reduce(due[n:] != 0.0):
        raise ArchiveError("statistics take other columns for indicators than the header does")
    check_ranks(rows, rows)


def check_ranks(rows: State, by: State) -> None:
    """Refuse recent values of an archive that contradict the statistics of their columns."""
    n, width = rows.ranks.shape
    if not rows.ranks.size:
        return
    is_held = np.arange(width) < np.minimum(by.present - by.began, rows.window)[:n, None]
    ring, ranks = (np.where(is_held, values, math.inf) for values in (rows.ring, rows.ranks))
    alike = (np.sort(ring, axis=1) == ranks).all(axis=1)
    if not alike.all():
        raise ArchiveError(f"the sorted values of column {int(alike.argmin())} are not its values")


def check_bounds(name: str, values: NDArray[Any], low: float, high: float) -> None:
    """Refuse values of an archive outside [low, high]."""
    # `reduce` takes half the time of `min` for few values, and states of keys are checked at every load.
    if values.size and not (
        low <= np.minimum.reduce(values, axis=None) and np.maximum.reduce(values, axis=None) <= high
    ):
        raise ArchiveError(f"{name} hold values that are not between {low:g} and {high:g}")


def encode_param(value: Any) -> Any:
    """Return a parameter as JSON values."""
    if isinstance(value, dict):
        return {"dict": [[encode_label(k), encode_label(v)] for k, v in value.items()]}
    return encode_label(value)


def decode_param(value: Any) -> Any:
    """Return the parameter that `encode_param` encoded."""
    if isinstance(value, dict) and set(value) == {"dict"}:
        return {decode_label(k): decode_label(v) for k, v in value["dict"]}
    return decode_label(value)
