"""Datetime features, and rare kinds of data frames."""

from __future__ import annotations

import functools
import logging
import math
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

from connectors import open_source
from streamsvm import BSGDClassifier, CPMClassifier, DelayedClassifier, StreamSVMClassifier
from tests.errors import raises
from tests.learners import knowledge

START = datetime(2024, 6, 2, 18, 30)
MOMENTS = [START + timedelta(minutes=97 * i, microseconds=499 * i) for i in range(60)]
NAMES = ["t hour sin", "t hour cos", "t weekday sin", "t weekday cos"]


def rows() -> tuple[list[dict[str, Any]], list[str]]:
    events = [{"x": float(i % 7), "t": moment, "c": "ab"[i % 2]} for i, moment in enumerate(MOMENTS)]
    events[5]["t"] = None
    return events, ["day" if 6 <= moment.hour < 18 else "night" for moment in MOMENTS]


@functools.cache
def learned_one_by_one(make: Any = CPMClassifier) -> Any:
    model = make()
    for x, label in zip(*rows(), strict=True):
        model.learn_one(x, label)
    return model


def test_a_datetime_equals_a_column_of_times_of_the_command_line(tmp_path: Any) -> None:
    events, labels = rows()
    lines = [f"{x['x']},{x['t'] or ''},{x['c']},{y}" for x, y in zip(events, labels, strict=True)]
    (tmp_path / "a.csv").write_text("x,t,c,y\n" + "\n".join(lines) + "\n")
    model = CPMClassifier()
    for batch in open_source(str(tmp_path / "a.csv"), label="y", types="t:time"):
        model.learn_many(batch.features, batch.labels)
    assert knowledge(model) == knowledge(learned_one_by_one())


def test_the_conversion_of_datetimes_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    model = CPMClassifier()
    model.predict_one({"t": START})
    assert model.notices == []
    for x, label in zip(*rows(), strict=True):
        model.learn_one(x, label)
    (notice,) = model.notices
    assert all(name in notice for name in NAMES)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [notice]
    assert model.clone().notices == []


@functools.cache
def frames() -> dict[str, Any]:
    """Return the rows in many kinds of data frames."""
    pd, pl, pa = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    events, _ = rows()
    table = {name: [x[name] for x in events] for name in events[0]}
    zoned = [None if moment is None else moment.replace(tzinfo=UTC) for moment in table["t"]]
    away = timezone(timedelta(hours=5, minutes=30))
    arrow = pa.table(table | {"t": pa.array(zoned, pa.timestamp("ns", "Asia/Kolkata"))})
    return {
        "pandas": pd.DataFrame(table),
        "pandas zone": pd.DataFrame(table | {"t": pd.to_datetime(pd.Series(zoned)).dt.tz_convert("Asia/Kolkata")}),
        "pandas objects": pd.DataFrame(table).astype({"t": object}),
        "polars zone": pl.DataFrame(table | {"t": zoned}).with_columns(
            pl.col("t").dt.convert_time_zone("Asia/Kolkata")
        ),
        "pyarrow": arrow,
        "table of arrays": table | {"t": np.array(table["t"], "datetime64[us]"), "x": np.array(table["x"])},
        "record array": np.array(
            [(x["x"], x["t"] or np.datetime64("NaT"), x["c"]) for x in events],
            [("x", float), ("t", "datetime64[ns]"), ("c", object)],
        ).view(np.recarray),
        "dicts": events,
        "dicts of a zone": [
            x | {"t": None if x["t"] is None else x["t"].replace(tzinfo=UTC).astimezone(away)} for x in events
        ],
        "dicts of numpy's": [x | {"t": np.datetime64(x["t"] or "NaT", "ns")} for x in events],
        "dicts of pandas'": [x | {"t": pd.Timestamp(x["t"]) if x["t"] else pd.NaT} for x in events],
    }


@pytest.mark.parametrize("kind", [*frames()])
def test_frames_equal_single_events(kind: str) -> None:
    X, (_, labels) = frames()[kind], rows()
    model = CPMClassifier()
    model.learn_many(X, labels)
    assert knowledge(model) == knowledge(learned_one_by_one())
    assert len(model.notices) == 1
    found = model.predict_many(X)
    labels = found.to_pylist() if kind == "pyarrow" else list(found)
    assert labels == [model.predict_one(x) for x in rows()[0]]


@pytest.mark.parametrize("make", [BSGDClassifier, StreamSVMClassifier])
def test_all_learners_take_datetimes(make: Any) -> None:
    model = learned_one_by_one(make)
    many = make()
    many.learn_many(*rows())
    assert many.predict_proba_one(rows()[0][7]) == model.predict_proba_one(rows()[0][7])
    reasons = model.explain_one(rows()[0][7])
    assert {one.feature for one in reasons.contributions} == {"x", "c", *NAMES}


def test_numbers_beside_a_datetime_are_converted_at_once() -> None:
    numbers = [{f"x{i}": float(i * k % 7) for i in range(40)} for k in range(len(MOMENTS))]
    wide = [x | {"t": np.datetime64(moment, "ns")} for x, moment in zip(numbers, MOMENTS, strict=True)]
    one, many = CPMClassifier(), CPMClassifier()
    for k, x in enumerate(wide):
        one.learn_one(x, k % 2)
    many.learn_many(wide, [k % 2 for k in range(len(wide))])
    assert knowledge(one) == knowledge(many)
    assert len(one.notices) == len(many.notices) == 1


def test_events_with_datetimes_wait_for_their_labels(caplog: pytest.LogCaptureFixture) -> None:
    late = DelayedClassifier(CPMClassifier())
    for i, (x, label) in enumerate(zip(*rows(), strict=True)):
        late.predict_one(x, key=i)
        late.learn_one(i, label)
    assert len(caplog.records) == 1
    plain = learned_one_by_one()
    assert late.model.predict_proba_one(rows()[0][7]) == plain.predict_proba_one(rows()[0][7])


def test_dates_are_days() -> None:
    model = CPMClassifier()
    model.learn_one({"t": date(2024, 6, 2)}, 0)
    other = CPMClassifier()
    sunday = 2 * math.pi * 6 / 7
    other.learn_one(dict(zip(NAMES, (0.0, 1.0, math.sin(sunday), math.cos(sunday)), strict=True)), 0)
    assert knowledge(model) == knowledge(other)


@pytest.mark.parametrize(
    "value", [timedelta(1), np.timedelta64(5, "ns"), np.timedelta64(5, "s")], ids=["datetime", "ns", "s"]
)
def test_durations_are_refused_with_a_way_out(value: Any) -> None:
    pd = pytest.importorskip("pandas")
    model = CPMClassifier()
    with raises(TypeError, named="'t'"):
        model.learn_one({"x": 1.0, "t": value}, 0)
    with raises((TypeError, ValueError), named="'t'"):
        model.learn_many([{"x": 1.0, "t": value}], [0])
    for X in (pd.DataFrame({"t": [value]}), {"t": np.array([value], "timedelta64[ns]")}):
        with raises((TypeError, ValueError), named="'t'"):
            model.learn_many(X, [0])
