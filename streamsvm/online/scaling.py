"""Running scaling of the online learners, and conversion to and from `Scaler`."""

from __future__ import annotations

import math

import numpy as np

from streamsvm.core.precompile import prepare
from streamsvm.core.state import State
from streamsvm.features import ranks
from streamsvm.features.rows import Floats, Ints
from streamsvm.features.scaler import CLIP, LARGEST, NONE, RANK, SCALER, STANDARD, UNLIMITED
from streamsvm.features.space import FeatureSpace
from streamsvm.models import Scaler
from streamsvm.parameters import ParameterError

SCALINGS = ("none", "standard", "decayed", "rank")
# Maximum number of ranked columns, because ranks keep two windows of values per column.
RANKED_MOST = 512
# Statistics of a fitted model count as this many events.
MAPPED = 1_000.0


def new_rows(
    n_columns: int,
    kind: str | None,
    window: int = 0,
    spacing: int = 1,
    *,
    stats_elsewhere: bool = False,
    room: int = UNLIMITED,
) -> State:
    """Create the memory of rows of `n_columns` columns.

    Parameters
    ----------
    n_columns
        Number of columns.
    kind
        One of SCALINGS; None if the rows arrive scaled.
    window, spacing
        Size of the window of "rank" or "decayed" scaling, and the stride at which values enter a window of ranks.
    stats_elsewhere
        Whether another memory has the statistics; then none are allocated here.
    room
        Number of events after which the memory must grow.
    """
    ranked = min(n_columns, RANKED_MOST) if kind == "rank" else 0
    rows = State(
        SCALER,
        {
            "columns": n_columns,
            "weight_rows": n_columns + 1,
            "scaled": n_columns if kind is not None and not stats_elsewhere else 0,
            "ranked": ranked,
            "window": min(window, room) if kind == "rank" else 0,
        },
    )
    rows.all_rows[:] = np.arange(n_columns + 1)
    rows.scaling = {"standard": STANDARD, "decayed": STANDARD, "rank": RANK}.get(kind or "", NONE)
    rows.window, rows.spacing = window if kind == "rank" else 0, spacing
    if ranked and window:
        prepare(list(ranks.ENTRY_POINTS.values()))
        for name, entry in ranks.ENTRY_POINTS.items():
            setattr(rows, name, entry.compile().address)
    if kind == "decayed":
        rows.decay = 0.5 ** (1.0 / window)
    if kind == "none":
        rows.limit = LARGEST
        rows.scale[:] = 1.0
    return rows


def n_recent(rows: State, stats: State, j: int) -> int:
    """Return the number of values among which column j is ranked.

    `stats` is the memory that has the statistics of the columns.
    """
    return int(min(stats.present[j] - stats.began[j], rows.window))


def unscaled(rows: State, stats: State, columns: Ints, values: Floats) -> list[float]:
    """Convert scaled values to the units of the stream; ranks become quantiles.

    `stats` is the memory that has the statistics of the columns.
    """
    scale, shift = stats.scale[columns], stats.shift[columns]
    found: list[float] = (values / np.where(scale > 0.0, scale, np.inf) + shift).tolist()
    if rows.scaling == RANK:
        for i, (j, z) in enumerate(zip(columns.tolist(), values.tolist(), strict=True)):
            if j < len(rows.ranks) and stats.centred[j] > 0.0:
                held = rows.ranks[j, : n_recent(rows, stats, j)]
                if len(held) == 0:
                    continue
                place = min(max(z / math.sqrt(12.0) + 0.5, 0.0), 1.0) * (len(held) - 1)
                low = int(place)
                high = min(low + 1, len(held) - 1)
                found[i] = float(held[low] + (place - low) * (held[high] - held[low]))
    return found


def scaler_of(rows: State, space: FeatureSpace) -> Scaler:
    """Return the scaling of a learner as a `Scaler`."""
    n = len(space)
    scaled = rows.scaling != NONE
    windows = None
    if rows.scaling == RANK:
        windows = [
            rows.ranks[j, : n_recent(rows, rows, j)].copy()
            if j < len(rows.ranks) and rows.centred[j] > 0.0
            else np.zeros(0)
            for j in range(n)
        ]
    return Scaler(
        list(space.names),
        np.array(space.is_indicator, bool),
        rows.shift[:n].copy(),
        rows.scale[:n].copy(),
        rows.count[:n].copy(),
        CLIP if scaled else math.inf,
        windows,
    )


def scaler_for(given: Scaler, rows: State, space: FeatureSpace) -> Scaler:
    """Return the scaling with which a learner adopts a model.

    A model with a scaling keeps it. A model for unscaled values gets the learner's running statistics. If these do not
    cover its columns, it gets the statistics of its training data, which count as MAPPED events. A learner without
    scaling refuses such data, because its step sizes assume columns of similar scale.
    """
    if rows.scaling == NONE and given.mean is not None:
        raise ParameterError(
            "scaling", "is 'none', but the model was fitted to columns of any scale: adopt it with scaling='standard'"
        )
    if not given.is_identity or rows.scaling != STANDARD:
        _check_way(given, rows)
        return given
    own = scaler_of(rows, space)
    columns = {name: j for j, name in enumerate(own.names) if own.count[j] > 1.0}
    d = len(given.names)
    if all(name in columns for name in given.names):
        at = [columns[name] for name in given.names]
        shift, scale, count = own.shift[at], own.scale[at], own.count[at]
    elif given.mean is not None and given.spread is not None:
        shift, count = given.mean.copy(), np.full(d, MAPPED)
        scale = np.divide(1.0, given.spread, out=np.zeros(d), where=given.spread > 0.0)
    else:
        raise ParameterError(
            "scaling",
            "needs the scale of the model's columns, which is unknown: train this learner on some events first, or "
            "use 'none'",
        )
    return Scaler(given.names, given.is_indicator, shift, scale, count, CLIP)


def check_scaler(scaler: Scaler, rows: State, max_features: int) -> None:
    """Raise ValueError if the columns or the kind of scaling do not fit the learner."""
    _check_way(scaler, rows)
    if (n := len(scaler.names) - len(scaler.gaps)) > max_features:
        raise ParameterError("max_features", f"is {max_features}, the model has {n} columns")


def _check_way(scaler: Scaler, rows: State) -> None:
    kind = rows.scaling
    if (scaler.windows is not None) != (kind == RANK) or (math.isinf(scaler.limit) != (kind == NONE)):
        raise ParameterError("scaling", "of the model is another")


def adopt_statistics(scaler: Scaler, rows: State) -> None:
    """Copy the statistics of a scaler into the memory of an untrained learner."""
    seen = float(scaler.count.max(initial=0.0))
    for j in np.flatnonzero(~scaler.is_indicator & (scaler.count > 0.0)):
        variance = 1.0 / scaler.scale[j] ** 2 if scaler.scale[j] > 0.0 else 0.0
        rows.count[j] = rows.present[j] = scaler.count[j]
        # A column with a shift is centred, so it has had a value in every event since its first.
        rows.born[j] = seen - scaler.count[j] if scaler.shift[j] != 0.0 else 0.0
        rows.squares[j] = scaler.count[j] * variance
        rows.shift[j], rows.scale[j] = scaler.shift[j], scaler.scale[j]
    for i, values in enumerate((scaler.windows or [])[: len(rows.ranks)]):
        held = values[: int(rows.window)]
        rows.ring[i, : len(held)] = rows.ranks[i, : len(held)] = held
        if len(held):
            rows.present[i], rows.born[i] = len(held), seen - len(held)
            rows.centred[i] = 1.0
    rows.seen = seen
