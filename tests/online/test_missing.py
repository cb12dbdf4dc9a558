"""Explicitly missing values and absent names, for rows in any form."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse

import streamsvm
from connectors.columns.absent import ABSENT
from connectors.events import SparseRows, rows_of
from streamsvm import (
    BSGDClassifier,
    CPMClassifier,
    DelayedClassifier,
    KeyedClassifier,
    RefitClassifier,
    StreamSVMClassifier,
)
from streamsvm.delayed.stored_features import Layouts
from streamsvm.refit import Every
from streamsvm.run import Run, RunConfig
from tests.learners import assert_same_knowledge, csr, looped

N, D = 240, 3
NAMES = [f"c{j}" for j in range(D)]


def stream(seed: int = 0) -> tuple[np.ndarray[Any, Any], list[str]]:
    """Columns of mean 20, present in 40 % of the events."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) + 20.0
    y = np.where(X.sum(axis=1) > 20.0 * D, "above", "below").tolist()
    X[rng.random(X.shape) > 0.4] = math.nan
    return X, y


X, Y = stream()


def dicts(X: np.ndarray[Any, Any], missing: Any = None) -> list[dict[str, Any]]:
    return [dict(zip(NAMES, [missing if x != x else x for x in row], strict=True)) for row in X.tolist()]


def without(X: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    """Return events without the names of missing values."""
    return [{name: x for name, x in event.items() if x is not None} for event in dicts(X)]


def objects(X: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.array([x[name] for x in dicts(X)], object) for name in NAMES}


def mixed(X: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    """Return None and NaN in turn, in two orders of the names."""
    events = [dicts(X, (None, math.nan)[i % 2])[i] for i in range(len(X))]
    return [dict(reversed(event.items())) if i % 3 else event for i, event in enumerate(events)]


EXPLICIT: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "None": dicts,
    "NaN": partial(dicts, missing=math.nan),
    "both": mixed,
    "pandas": lambda X: pd.DataFrame(X, columns=NAMES),
    "nullable": lambda X: pd.DataFrame(X, columns=NAMES).convert_dtypes(),
    "polars": lambda X: pl.DataFrame(dicts(X)),
    "arrow": lambda X: pa.Table.from_pylist(dicts(X)),
    "table": lambda X: dict(zip(NAMES, X.T.copy(), strict=True)),
    "objects": objects,
}
MAKERS = [
    partial(CPMClassifier),
    partial(BSGDClassifier, budget=5, scaling="rank", scaling_window=9),
    partial(BSGDClassifier, budget=5, scaling="decayed", scaling_window=50),
    partial(StreamSVMClassifier, budget=5),
    partial(StreamSVMClassifier, effort="low"),
]


def centred(model: Any) -> list[float]:
    return list(model._rows.centred[: len(model.columns)])


def by_parts(model: Any, form: Callable[..., Any], X: Any, size: int) -> Any:
    for start in range(0, N, size):
        model.test_then_train(form(X[start : start + size]), Y[start : start + size])
    return model


@pytest.mark.parametrize("make", MAKERS)
def test_missing_values_are_centred_in_every_form(make):
    single = make()
    looped(single, dicts(X), Y)
    assert centred(single) == [1.0] * D
    for name, form in EXPLICIT.items():
        for size in (1, 50):
            if size > 1 or name in ("None", "both", "table"):
                assert_same_knowledge(by_parts(make(), form, X, size), single)


@pytest.mark.parametrize("make", MAKERS)
def test_columns_under_absent_names_are_sparse_in_every_form(make):
    single = make()
    looped(single, without(X), Y)
    assert centred(single) == [0.0] * D
    assert_same_knowledge(by_parts(make(), without, X, 50), single)
    numbered = [{int(name[1:]): x for name, x in event.items()} for event in without(X)]
    single = make()
    looped(single, numbered, Y)
    assert_same_knowledge(by_parts(make(), csr, X, 50), single)


@pytest.mark.parametrize("make", MAKERS)
def test_entries_of_sparse_rows_may_be_missing(make):
    single, n = make(), np.arange(N + 1) * D
    looped(single, [dict(enumerate(row)) for row in X.tolist()], Y)
    assert centred(single) == [1.0] * D
    for rows in (
        SparseRows(n, np.tile(np.arange(D), N), X.ravel()),
        scipy.sparse.csr_array((X.ravel(), np.tile(np.arange(D), N), n), shape=X.shape),
        X,
        X.astype(object),
    ):
        model = make()
        model.test_then_train(rows, Y)
        if not isinstance(rows, SparseRows):  # arrays also have a width
            single._space.mismatches.width = D
        assert_same_knowledge(model, single)


@pytest.mark.parametrize("kind", ["explicit", "absent", "some"])
def test_texts_beside_missing_values(kind):
    """Texts lead to other encoders; a name may have numbers and texts."""
    events = [x | {"colour": (None, "red", "blue")[i % 3]} for i, x in enumerate(dicts(X))]
    for i, x in enumerate(events):
        if i % 40 == 39:
            x["c0"] = "text"
        if kind == "absent" or (kind == "some" and i % 5 == 0):
            events[i] = {name: value for name, value in x.items() if value is not None}
    single, many = StreamSVMClassifier(budget=5), StreamSVMClassifier(budget=5)
    looped(single, events, Y)
    many.test_then_train(events[:100], Y[:100])
    many.test_then_train(events[100:], Y[100:])
    assert_same_knowledge(many, single)
    if kind == "explicit":
        frame = StreamSVMClassifier(budget=5)
        frame.test_then_train(pd.DataFrame(events), Y)
        assert_same_knowledge(frame, single)


def test_the_presence_of_a_constant_is_kept():
    """Centring would make a flag of 1 or blank 0."""
    model = CPMClassifier()
    model.learn_many(
        [{"flag": 1.0 if i % 3 else None, "x": float(i % 7)} for i in range(200)], [i % 2 for i in range(200)]
    )
    assert dict(zip(model.columns, centred(model), strict=True)) == {"flag": 0.0, "x": 1.0}


def test_saved_learners_continue(tmp_path):
    whole, model = StreamSVMClassifier(budget=5), StreamSVMClassifier(budget=5)
    model.learn_many(dicts(X[:100]), Y[:100])
    whole.learn_many(dicts(X), Y)
    model.save(tmp_path / "model")
    for other in (streamsvm.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        other.learn_many(pd.DataFrame(X[100:], columns=NAMES), Y[100:])
        assert_same_knowledge(other, whole)


def test_windows_of_refits_are_equal():
    models = []
    for feed in ("single", "None", "table"):
        model = RefitClassifier(CPMClassifier(), "newton", trigger=Every(100), delay=64)
        if feed == "single":
            looped(model, dicts(X), Y)
        else:
            by_parts(model, EXPLICIT[feed], X, 60)
        models.append(model)
    proba = [list(model.predict_proba_many(dicts(X))) for model in models]
    np.testing.assert_array_equal(proba[0], proba[1])
    np.testing.assert_array_equal(proba[0], proba[2])


@pytest.mark.parametrize("texts", [False, True])
def test_late_labels(texts):
    events = dicts(X)
    if texts:
        events = [x | {"colour": "red" if i % 2 else None} for i, x in enumerate(events)]
    own, late = CPMClassifier(), DelayedClassifier(CPMClassifier())
    own.learn_many(events, Y)
    for i, x in enumerate(events):
        late.predict_one(x, key=i)
    for i, label in enumerate(Y):
        late.learn_one({}, label, key=i)
    assert late.model.columns == own.columns
    assert centred(late.model) == centred(own) == [float(name in NAMES) for name in own.columns]
    np.testing.assert_array_equal(late.model._rows.missing, own._rows.missing)


@pytest.mark.parametrize("text", [{}, {"colour": "red"}])
def test_stored_rows_keep_which_values_are_missing_and_which_names_absent(text):
    layouts = Layouts()
    for other in [{}, *({str(i): np.int64(i)} for i in range(1_030))]:  # beyond 1,024 sets of names
        row = {"a": pd.NA, "b": None, "c": math.nan, "d": 1.0} | text | other
        (found,) = rows_of(layouts.unpack(*one_by_one(layouts.pack_one(row))), 1, missing=True)
        assert {name: value for name, value in found.items() if value == value and value is not None} == (
            {"d": 1.0} | text | other
        )
        assert found.keys() == row.keys()
    table: dict[str, Any] = {"a": np.array([1.0, ABSENT, math.nan]), "b": np.array([1.0, 2.0, 3.0])}
    if text:
        table["colour"] = np.array(["red", None, "blue"], object)
    packed = layouts.pack(table, 3)
    unpacked = rows_of(layouts.unpack(packed.layouts, packed.words, packed.lengths), 3, missing=True)
    assert ["a" in row for row in unpacked] == [True, False, True]


def one_by_one(packed: tuple[int, bytes]) -> tuple[Any, Any, Any]:
    layout, row = packed
    return np.array([layout]), np.frombuffer(row, np.float64), np.array([len(row) // 8])


def test_states_of_keys():
    keyed, state, own = KeyedClassifier(CPMClassifier(), label="y"), None, CPMClassifier()
    for x, label in zip(dicts(X), Y, strict=True):
        answers, state = keyed.step(state, [x | {"y": label}])
        predicted = own.predict_one(x)
        own.learn_one(x, label)
        assert answers[0]["prediction"] == predicted


def run(path: Path, **options: Any) -> list[str]:
    out = path.with_suffix(".out.csv")
    Run(RunConfig(source=str(path), label="y", out=str(out), quiet=True, **options)).start()
    return out.read_text().splitlines()


def lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize("options", [{}, {"model": "river.linear_model.LogisticRegression"}])
def test_runs_over_files(tmp_path, options):
    """Classifiers of River get no missing values."""
    rows = [x | {"y": label} for x, label in zip(dicts(X), Y, strict=True)]
    pl.DataFrame(rows).write_csv(tmp_path / "a.csv")
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text(lines(rows))
    (tmp_path / "absent.jsonl").write_text(lines(x | {"y": label} for x, label in zip(without(X), Y, strict=True)))
    names = ("a.csv", "a.parquet", "a.jsonl", "absent.jsonl")
    found = [[line.split(",")[1:] for line in run(tmp_path / name, **options)] for name in names]
    assert len(found[0]) == N + 1
    assert found[0] == found[1] == found[2]
    assert (found[3] == found[0]) == bool(options)
