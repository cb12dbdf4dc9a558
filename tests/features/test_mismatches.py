"""Models that get other features than in training."""

from __future__ import annotations

import copy
import datetime
import json
import logging
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

import streamsvm
from streamsvm import CPMClassifier, DelayedClassifier, cli
from streamsvm.features.mismatches import FeatureMismatchError
from streamsvm.features.rows import BadRows
from tests.choices import each_choice
from tests.errors import raises
from tests.learners import MAKERS

X = np.random.default_rng(0).normal(size=(60, 4))
Y = np.where(X[:, 0] > 0.0, "u", "d").tolist()
FRAME = pd.DataFrame(X, columns=list("abcd"))


def saved(model: Any, folder: Path) -> Any:
    model.save(folder / "m.svm")
    return streamsvm.load(folder / "m.svm")


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_an_array_of_another_width_is_refused(make, tmp_path):
    model = make()
    model.learn_many(X, Y)
    wide = np.hstack([X, X])
    for held in (model, saved(model, tmp_path), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        for rows in (X[:, :3], wide, X[:, :3].astype(object), scipy.sparse.csr_array(wide)):
            for way in (held.predict_many, held.predict_proba_many, lambda rows, held=held: held.learn_many(rows, Y)):
                with raises(FeatureMismatchError, named=f"{rows.shape[1]} features") as caught:
                    way(rows)
        for rows in (X, X.astype(object), scipy.sparse.csr_array(X), pd.DataFrame(X)):
            held.predict_many(rows)
    assert vars(pickle.loads(pickle.dumps(caught.value))) == vars(caught.value)  # as from a worker process


@each_choice(("make", MAKERS.values()), ("learned", [X, FRAME]))
def test_rows_without_a_known_feature_are_refused(make, learned, tmp_path):
    model = make()
    model.learn_many(learned, Y)
    for held in (model, saved(model, tmp_path)):
        before = held.n_features_in_ if hasattr(held, "n_features_in_") else None
        upper = pl.DataFrame({"A": X[:, 0], "B": X[:, 1]})
        for rows in (FRAME.rename(columns=str.upper), upper, FRAME if learned is X else X):
            with pytest.raises(FeatureMismatchError) as caught:
                held.predict_proba_many(rows)
            assert caught.value.missing
            assert caught.value.new
            with pytest.raises(FeatureMismatchError):
                held.learn_many(rows, Y)
        assert before == (held.n_features_in_ if hasattr(held, "n_features_in_") else None)


RENAMED = {"a": "A", "b": "B"}


@each_choice(("library", [pd, pl]), ("way", ["predict_many", "predict_proba_many", "learn_many"]))
def test_a_few_renamed_columns_of_a_frame_are_reported_once(way, library, caplog):
    wide = library.DataFrame({name: X[:, k % 4] for k, name in enumerate("abcdefghij")})
    model = CPMClassifier()
    model.learn_many(wide, Y)
    rows = [wide.rename(columns=RENAMED) if library is pd else wide.rename(RENAMED)] * 3
    for each in rows:
        model.learn_many(each, Y) if way == "learn_many" else getattr(model, way)(each)
    (notice,) = model.notices
    assert notice == "8 of the 10 features that the model has learned are given: missing are a, b; new are A, B"
    assert [record.getMessage() for record in caplog.records] == [notice]


def test_columns_that_are_only_missing_or_only_new_are_an_information(caplog):
    caplog.set_level(logging.INFO)
    for rows, part in ((FRAME.drop(columns="b"), "missing are b"), (FRAME.assign(e=1.0), "new are e")):
        model = CPMClassifier()
        model.learn_many(FRAME, Y)
        for _ in range(3):
            model.predict_many(rows)
        assert model.notices == []
        (record,) = caplog.records
        assert record.levelno == logging.INFO
        assert part in record.getMessage()
        caplog.clear()
    model = CPMClassifier()
    model.learn_many(FRAME.assign(e=math.nan), Y)  # a feature without values is not learned
    model.predict_many(FRAME.assign(e=math.nan))
    model.predict_many(FRAME[list("dcba")])
    assert caplog.records == []


def test_learned_columns_without_values_are_no_mismatch(tmp_path, caplog):
    """Columns may end in the middle of a file, from where a saved learner continues."""
    model = CPMClassifier()
    model.learn_many(FRAME.assign(c=None, d=None), Y)
    model.save(tmp_path / "model.svm")
    for rows in (FRAME.assign(a=None, b=None), [{"a": None, "b": None, "c": 1.0, "d": 2.0}] * 60):
        model = streamsvm.load(tmp_path / "model.svm")
        model.check_names(rows if isinstance(rows, list) else dict(rows.items()))
        assert len(model.predict_many(rows)) == 60
        model.learn_many(rows, Y)
        assert model.columns == list("abcd")
    assert caplog.records == []


def test_objects_of_dates_are_no_mismatch(tmp_path, caplog):
    days = pd.DataFrame({"day": [datetime.date(2026, 1, 1 + i % 28) for i in range(60)]})
    model = CPMClassifier()
    model.learn_many(days, Y)
    model.save(tmp_path / "model.svm")
    caplog.clear()
    assert len(streamsvm.load(tmp_path / "model.svm").predict_many(days)) == 60
    assert caplog.records == []


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_few_renamed_columns_of_a_stream_are_reported_once(suffix, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    wide = pd.DataFrame({name: np.tile(X[:, k % 4], 5) for k, name in enumerate("abcdefghij")}).assign(y=Y * 5)
    for name, frame in (("one", wide), ("two", wide.rename(columns=RENAMED))):
        if suffix == "csv":
            frame.to_csv(f"{name}.csv", index=False)
        else:
            frame.to_json(f"{name}.jsonl", orient="records", lines=True)
    run = ["--label", "y", "--summary", "s.json"]
    assert cli.main(["run", f"one.{suffix}", *run, "--model", "cpm", "--save", "m.svm"]) == 0
    capsys.readouterr()
    for command in ("predict", "run"):
        assert cli.main([command, f"two.{suffix}", *run, "--model", "m.svm"]) == 0
        (notice,) = json.loads(Path("s.json").read_text())["notices"]
        assert notice == "8 of the 10 features that the model has learned are given: missing are a, b; new are A, B"
        out, err = capsys.readouterr()
        assert out.count(notice) == err.count(notice) == 1
    assert cli.main(["predict", f"one.{suffix}", *run, "--model", "m.svm"]) == 0
    assert json.loads(Path("s.json").read_text())["notices"] == []


def test_sparse_rows_and_rare_fields_that_differ_are_no_mistake(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    for name, first in (("one", 0), ("two", 10)):
        words = [sorted({int(w) for w in rng.integers(first, first + 100, 8)}) for _ in range(500)]
        pairs = (f"{i % 2} " + " ".join(f"{w + 1}:1" for w in row) + "\n" for i, row in enumerate(words))
        Path(f"{name}.libsvm").write_text("".join(pairs))
        rows = ({"y": i % 2} | {f"w{w}": 1 for w in row} for i, row in enumerate(words))
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        dense = ({"y": i % 2, "a": i % 7, "b": i % 3} | ({name: 1} if i % 99 == 7 else {}) for i in range(500))
        Path(f"{name}.ndjson").write_text("".join(json.dumps(row) + "\n" for row in dense))
    for suffix in ("libsvm", "jsonl", "ndjson"):
        label = [] if suffix == "libsvm" else ["--label", "y"]
        saved = ["--model", "cpm", "--save", "m.svm", "--set", "overwrite=true"]
        assert cli.main(["run", f"one.{suffix}", *label, *saved]) == 0
        assert cli.main(["run", f"two.{suffix}", *label, "--model", "m.svm"]) == 0
    assert "that the model has learned" not in "".join(capsys.readouterr())


def test_intermittent_features_are_not_reported():
    model = CPMClassifier()
    for i in range(50):
        model.predict_one({f"word {i}": 1.0})
        model.learn_one({f"word {i}": 1.0}, i % 2)
    model.learn_many([{"other": 1.0}, {"another": 2.0}], [0, 1])
    model.predict_many([{"unknown": 1.0}])
    assert model.notices == []


@pytest.mark.parametrize("make", [CPMClassifier, lambda: DelayedClassifier(CPMClassifier())])
def test_many_events_without_a_known_feature_are_reported_once(make, caplog):
    model = make()
    for x, y in zip(FRAME.to_dict("records"), Y, strict=True):
        model.learn_one(x, y)
    with caplog.at_level(logging.WARNING):
        for i in range(30):
            model.predict_one({"A": 1.0, "B": 2.0}, key=i)
    assert len(caplog.records) == 1
    assert "A, B" in caplog.text


FORMS = {
    "list": lambda table: [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)],
    "array": lambda table: np.array([*table.values()]).T,
    "table": lambda table: {name: np.array(column) for name, column in table.items()},
    "frame": pd.DataFrame,
    "polars": pl.DataFrame,
}


@each_choice(("way", ["one", *FORMS]), ("is_number", [True, False]))
def test_values_of_another_kind_than_learned_are_reported_once(caplog, way, is_number):
    numbers, texts = [float(i % 3) for i in range(30)], [str(i % 3) for i in range(30)]
    learned, given = (numbers, texts) if is_number else (texts, numbers)
    model = CPMClassifier(categories=None if is_number else ("x", 0))
    name = 0 if way == "array" else "x"
    model.learn_many([{name: value} for value in learned], ["u", "d", "v"] * 10)
    for _ in range(2):
        if way == "one":
            assert len({model.predict_one({name: value}) for value in given}) == 1
        else:
            model.predict_many(FORMS[way]({name: given}))
    (notice,) = model.notices
    assert f"feature {name!r} was learned as" in notice
    assert ("float(x)" if is_number else "str(int(x))") in notice
    assert [record.getMessage() for record in caplog.records] == [notice]


@each_choice(
    ("way", ["one", "list", "frame"]),
    (("learned", "given"), [("north", "NORTH"), ("north", "north "), ("1", "1.0"), ("True", "TRUE")]),
)
def test_texts_that_differ_only_in_spelling_are_reported_once(way, learned, given, caplog):
    model = CPMClassifier()
    model.learn_many([{"x": learned, "z": 1.0}, {"x": "other", "z": 2.0}] * 30, ["u", "d"] * 30)
    rows = [{"x": given, "z": 1.0}, {"x": "new", "z": 2.0}, {"x": None, "z": 1.0}] * 10
    for _ in range(3):
        if way == "one":
            for row in rows:
                model.predict_one(row)
        else:
            model.predict_proba_many(rows if way == "list" else pd.DataFrame(rows))
    (notice,) = model.notices
    assert f"texts such as {given!r}, which differ from learned texts such as {learned!r}" in notice
    assert [record.getMessage() for record in caplog.records] == [notice]


def test_texts_that_are_new_are_no_mistake(caplog):
    model = CPMClassifier()
    model.learn_many([{"x": "north"}, {"x": "a"}] * 30, ["u", "d"] * 30)
    for i in range(300):
        model.predict_one({"x": f"place {i % 150}"})
        model.predict_one({"x": "A"})  # letters may be categories
    model.predict_many([{"x": "South"}] * 300)
    assert model.notices == []
    assert caplog.records == []


def test_values_of_both_kinds_and_missing_ones_are_no_mistake(caplog):
    model = CPMClassifier()
    model.learn_many([{"x": 1.0, "c": "a"}, {"x": "off", "c": "b"}] * 5, ["u", "d"] * 5)
    caplog.clear()
    model.predict_many([{"x": None, "c": None}, {"x": "new", "c": "new"}, {"c": math.nan}, {"x": math.nan}] * 20)
    model.predict_many(pd.DataFrame({"x": [math.nan] * 20, "c": [None] * 20}))
    model.predict_many(pd.DataFrame({"x": [math.nan] * 20, "c": [math.nan] * 20}))
    assert caplog.text == ""


def test_columns_that_were_missing_at_first_are_not_reported():
    for gaps, rows in ((FRAME.assign(b=math.nan, c=math.nan, d=math.nan), FRAME), (X * [1.0, *[math.nan] * 3], X)):
        model = CPMClassifier()
        model.learn_many(gaps, Y)
        model.learn_many(rows, Y)
        assert model.notices == []


def test_bad_rows_are_reported_before_names():
    model = CPMClassifier()
    model.learn_many(FRAME, Y)
    too_large = np.array([[1.0, math.inf]], np.float32)
    for rows in (too_large, pd.DataFrame({"new": [-math.inf]}), scipy.sparse.csr_array([[math.inf]]), [{"a": 1e308}]):
        with pytest.raises(BadRows):
            model.predict_many(rows)


def test_the_width_of_arrays_is_not_learned(tmp_path):
    of_array, of_events = CPMClassifier(), CPMClassifier()
    of_array.learn_many(X, Y)
    for row, label in zip(X.tolist(), Y, strict=True):
        of_events.learn_one(dict(enumerate(row)), label)
    assert of_array.state()[0] == of_events.state()[0]
    assert saved(of_array, tmp_path).n_features_in_ == 4
    assert saved(of_events, tmp_path).n_features_in_ is None


# The command line --------------------------------------------------------------------------------------------------


def write(path: Path, names: str) -> None:
    rows = [dict(zip(names, row, strict=True)) | {"y": label} for row, label in zip(X.tolist(), Y, strict=True)]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".libsvm":
        cells = [" ".join(f"{j}:{value}" for j, value in enumerate(row, 1)) for row in X.tolist()]
        path.write_text("".join(f"{i % 2} {row}\n" for i, row in enumerate(cells)))
    else:
        pd.DataFrame(rows).to_csv(path, index=False)


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.csv", "abcd")
    assert cli.main(["run", "a.csv", "--label", "y", "--model", "cpm", "--save", "m.svm", "--quiet"]) == 0
    (tmp_path / "out.csv").write_text("")
    return ["--model", "m.svm", "--out", "out.csv"]


@each_choice(("command", ["predict", "run"]), ("suffix", ["csv", "jsonl", "libsvm"]))
def test_a_loaded_model_that_knows_no_column_is_refused(loaded, tmp_path, capsys, suffix, command):
    write(tmp_path / f"b.{suffix}", "ABCD")
    label = [] if suffix == "libsvm" else ["--label", "y"]
    assert cli.main([command, f"b.{suffix}", *label, *loaded]) == 2
    assert "a, b, c, d" in capsys.readouterr().err
    assert (tmp_path / "out.csv").read_text() == ""


def test_a_loaded_model_is_not_given_features_of_others_with_late_labels(loaded, tmp_path, capsys):
    write(tmp_path / "b.csv", "ABCD")
    pd.read_csv("b.csv").assign(k=range(len(X)), t=range(len(X))).to_csv("b.csv", index=False)
    late = ("--label-source", "b.csv", "--join", "k", "--time", "t", "--set", "time-unit=s")
    pd.read_csv("b.csv").drop(columns="y").to_csv("events.csv", index=False)
    assert cli.main(["run", "events.csv", "--label", "y", *late, *loaded]) == 2
    assert "a, b, c, d" in capsys.readouterr().err
