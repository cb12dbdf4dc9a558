"""All inputs lead to the same step: row formats, batch sizes, invalid input."""

from __future__ import annotations

import copy
import importlib.util
import math
import pickle
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from river import checks

import streamsvm
from connectors.events import SparseRows
from streamsvm import BSGDClassifier, CPMClassifier, StreamSVMClassifier
from streamsvm.features.rows import BadRows
from streamsvm.online.base import OnlineClassifier
from tests.choices import each_choice
from tests.errors import raises
from tests.learners import (
    BSGD_SETTINGS,
    CPM_SETTINGS,
    ENSEMBLE_SETTINGS,
    assert_same_knowledge,
    blobs,
    csr,
    dicts,
    knowledge,
    looped,
    ring,
    snapshot,
)

NAN = math.nan

MAKERS = [
    partial(CPMClassifier),
    partial(CPMClassifier, n_faces=1, scaling="none"),
    partial(CPMClassifier, n_faces=9, scaling="rank", scaling_window=5, class_weight="balanced"),
    partial(CPMClassifier, entropy=0.9, scaling="decayed", scaling_window=4, horizon=5),
    partial(CPMClassifier, max_features=2, class_weight={"a": 2.0}),
    partial(BSGDClassifier, budget=4),
    partial(BSGDClassifier, budget=3, scaling="none", metric="fixed", absorb=1.0, merges=3),
    partial(BSGDClassifier, budget=3, scaling="rank", scaling_window=5),
    partial(BSGDClassifier, budget=2, max_features=2, class_weight="balanced", loss="log"),
    partial(StreamSVMClassifier, budget=3),
    partial(StreamSVMClassifier, members=("ranks-large", "linear"), budget=1, max_features=2, vote_window=5.0),
]


def stored(X: np.ndarray[Any, Any]) -> scipy.sparse.csr_array:
    """Convert rows to a sparse array with all values, NaN included."""
    n, d = X.shape
    return scipy.sparse.csr_array((X.ravel(), np.tile(np.arange(d), n), np.arange(n + 1) * d), shape=X.shape)


def sparse_rows(X: np.ndarray[Any, Any]) -> SparseRows:
    matrix = csr(X)
    return SparseRows(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data)


@each_choice(("make", MAKERS), ("copied", [copy.copy, copy.deepcopy]))
def test_a_copy_shares_nothing(make, copied):
    X, y = ring(60)
    model = make()
    model.test_then_train(X, y.tolist(), coverage=0.9)
    before, twin = snapshot(model), copied(model)
    twin.test_then_train(X, [f"other {i % 3}" for i in range(60)], coverage=0.9)
    assert snapshot(model) == before
    assert len(twin.classes_) == len(model.classes_) + 3


KEPT = [
    *(MAKERS[1], MAKERS[4]),
    *(partial(BSGDClassifier, **params) for params in BSGD_SETTINGS),
    *(partial(StreamSVMClassifier, **params) for params in ENSEMBLE_SETTINGS),
]


@pytest.mark.parametrize("make", KEPT)
@pytest.mark.filterwarnings("ignore:all . columns:RuntimeWarning")
def test_a_saved_learner_continues_bit_for_bit(make, tmp_path):
    X, y = blobs(200, 4)
    X[np.random.default_rng(3).random(X.shape) < 0.2] = NAN
    events = [x | {"color": "pqr"[i % 3]} for i, x in enumerate(dicts(X))]
    y = [*y[:130], *(None if i % 9 == 0 else "late" if i % 7 == 0 else y[i] for i in range(130, 200))]
    model = make()
    model.learn_many(events[:130], y[:130])
    model.save(tmp_path / "model")
    others = [streamsvm.load(tmp_path / "model"), type(model).from_state(*model.state())]
    others += [pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]
    expected = model.test_then_train(events[130:], y[130:])
    for other in others:
        assert looped(other, events[130:], y[130:]) == list(expected)
        assert_same_knowledge(other, model)
        other.learn_one({"new": 1.0}, "new")
        assert len(other.classes_) == len(model.classes_) + 1


FORMS: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "dicts": lambda X: [dict(enumerate(row)) for row in X.tolist()],
    "array": lambda X: X,
    "objects": lambda X: X.astype(object),
    "nones": lambda X: [{j: None if x != x else x for j, x in enumerate(row)} for row in X.tolist()],
    "stored": stored,
    "csr": csr,
    "csc": lambda X: csr(X).tocsc(),
    "sparse rows": sparse_rows,
    "pandas": pd.DataFrame,
    "nullable": lambda X: pd.DataFrame(X).convert_dtypes(),
    "table": lambda X: dict(enumerate(X.T.copy())),
}

# Forms without missing values: their names are absent.
SPARSE = {"csr", "csc", "sparse rows"}

cells = st.one_of(st.just(NAN), st.integers(-2, 2).map(float), st.floats(-1e3, 1e3))
rows = st.integers(1, 5).flatmap(lambda d: st.lists(st.lists(cells, min_size=d, max_size=d), min_size=1, max_size=25))
labels = st.sampled_from(["a", "a", "b", "b", 3, (1, "late"), None, NAN])
weights = st.sampled_from([0.0, 1.0, 1.0, 1.0, 0.25, 7.0])


def loop(model: OnlineClassifier, events: list[Any], y: list[Any], w: list[float]) -> list[Any]:
    """Loop as River does. None and NaN are not labels."""
    answers = []
    for x, label, weight in zip(events, y, w, strict=True):
        answers.append((model.predict_one(x), model.predict_proba_one(x)))
        if label is not None and label == label:
            model.learn_one(x, label, weight)
    return answers


def assert_answers(expected: list[Any], predicted: list[Any], proba: np.ndarray[Any, Any], classes: list[Any]) -> None:
    assert [answer for answer, _ in expected] == list(predicted)
    for (_, one), row in zip(expected, proba.tolist(), strict=True):
        many = dict(zip(classes, row, strict=True))
        assert one == {label: many.pop(label) for label in one}
        assert not any(many.values())  # 0 for unknown classes


def repeats(X: np.ndarray[Any, Any], y: list[Any]) -> bool:
    """Return whether an event occurs twice in a row.

    Columns have an effect from the first event that contains them.
    """
    seen = np.vstack([np.zeros(X.shape[1], bool), np.logical_or.accumulate(~np.isnan(X))])[:-1]
    said = np.where(seen, np.nan_to_num(X), 0.0)
    return any(y[i] == y[i - 1] and (said[i] == said[i - 1]).all() for i in range(1, len(y)))


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=4)
@given(data=st.data(), cells=rows, make=st.sampled_from(MAKERS))
def test_batches_in_any_form_cut_anywhere_are_a_loop(form, data, cells, make):
    X, n = np.array(cells), len(cells)
    y = data.draw(st.lists(labels, min_size=n, max_size=n))
    w = data.draw(st.lists(weights, min_size=n, max_size=n))
    cuts = sorted({0, n, *data.draw(st.lists(st.integers(0, n), max_size=4))})
    events = FORMS["dicts"](X)
    if form in SPARSE:
        events = [{name: x for name, x in event.items() if x == x} for event in events]
    single, many, silent = (make() for _ in range(3))
    waits = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for start, stop in pairwise(cuts):
            part = slice(start, stop)
            batch = FORMS[form](X[part])
            expected = loop(single, events[part], y[part], w[part])
            predicted, proba = many.test_then_train(batch, y[part], w=w[part], proba=True)
            assert_answers(expected, predicted, proba, many.classes_)
            learned = [label is not None and label == label for label in y[part]]
            silent.learn_many(
                FORMS[form](X[part][learned]),
                [label for label, one in zip(y[part], learned, strict=True) if one],
                [weight for weight, one in zip(w[part], learned, strict=True) if one],
            )
            assert_same_knowledge(single, many)
            # With label autocorrelation, a predicted event may still get its label.
            waits = waits or not all(learned) or 0.0 in w[part] or repeats(X[:stop], y[:stop])
            if not (waits and getattr(single, "label_autocorrelation", False)):
                assert_same_knowledge(single, silent)
    batch = FORMS[form](X)
    if hasattr(single, "without_order"):  # unordered rows are predicted without label autocorrelation
        single = single.without_order()
    assert list(many.predict_many(batch)) == [single.predict_one(x) for x in events]
    proba = np.asarray(many.predict_proba_many(batch))
    assert [dict(zip(many.classes_, row, strict=True)) for row in proba.tolist()] == [
        single.predict_proba_one(x) for x in events
    ]


@pytest.mark.parametrize(
    "make",
    [
        CPMClassifier,
        partial(BSGDClassifier, budget=20),
        partial(StreamSVMClassifier, budget=10),
        partial(StreamSVMClassifier, budget=10, label_autocorrelation=False, members=("standard", "polytope")),
    ],
)
def test_many_classes_in_batches_are_a_loop_saved_and_resumed(make):
    rng = np.random.default_rng(1)
    centres = 2.0 * rng.normal(size=(150, 3))
    which = np.minimum(rng.integers(150, size=360), np.arange(360))
    X, y = centres[which] + rng.normal(size=(360, 3)), which.tolist()
    single, many, resumed = make(), make(), make()
    expected = loop(single, FORMS["dicts"](X), y, [1.0] * 360)
    predicted, proba = many.test_then_train(X, y, proba=True)
    assert_answers(expected, predicted, proba, many.classes_)
    assert_same_knowledge(single, many)
    known = np.cumsum([label not in y[:i] for i, label in enumerate(y)])
    np.testing.assert_allclose(proba[1:].sum(axis=1), 1.0, rtol=1e-6)
    assert known[-1] > 128
    for start in range(0, 360, 90):
        resumed.test_then_train(X[start : start + 90], y[start : start + 90])
        resumed = copy.deepcopy(type(resumed).from_state(*resumed.state()))
    assert_same_knowledge(many, resumed)


def with_identifiers(n: int) -> tuple[list[dict[str, Any]], list[Any]]:
    """Events with an identifier, a time, a category and numbers; a few without label."""
    X, y = ring(n)
    events = [
        {"id": f"{i:x}", "when": f"2024-05-{1 + i // 24 % 30:02}T{i % 24:02}:00", "c": "pqr"[i % 3], "x": x, "z": z}
        for i, (x, z) in enumerate(X.tolist())
    ]
    return events, [None if i % 31 == 5 else str(label) for i, label in enumerate(y)]


@pytest.mark.parametrize("make", [CPMClassifier, BSGDClassifier, partial(StreamSVMClassifier, budget=5)])
def test_identifiers_and_times_are_left_out_on_every_path_at_the_same_event(make, caplog):
    events, y = with_identifiers(550)
    single, rest, table, rowwise, resumed = (make() for _ in range(5))
    answers = looped(single, events, y)
    predicted: list[Any] = []
    for start in range(0, 550, 110):
        part = slice(start, start + 110)
        predicted += table.test_then_train(pd.DataFrame(events[part]), y[part]).tolist()
        rowwise.test_then_train(events[part], y[part])
        resumed.test_then_train(pl.DataFrame(events[part]), y[part])
        resumed = type(resumed).from_state(*resumed.state())
        rest = copy.deepcopy(rest)
        rest.run_batch({name: [x[name] for x in events[part]] for name in events[0]}, y[part])
    assert [None if p is None else str(p) for p in predicted] == answers
    for other in (table, rowwise, resumed, rest):
        assert_same_knowledge(single, other)
    assert len(single.state()[0]["names"]) == 40 + 40 + 3 + 2
    left_out = [notice.split(":")[0] for notice in single.notices]
    assert left_out == ["feature 'when' is left out", "feature 'id' is left out"]
    assert resumed.notices == single.notices
    assert len(caplog.records) == 5 * 2


def test_columns_left_out_are_in_no_picture():
    events, y = with_identifiers(550)
    for model in (BSGDClassifier(), StreamSVMClassifier(budget=5)):
        model.run_batch(events, y)
        assert set(model.relevance) == {"x", "z", *(("c", c) for c in "pqr")}


def test_a_feature_is_kept_where_it_is_declared(caplog):
    events, y = with_identifiers(550)
    declared, late = CPMClassifier(categories=["id", "when"]), CPMClassifier()
    declared.run_batch(events, y)
    assert declared.notices == []
    assert len(declared.state()[0]["names"]) > 1_000
    assert CPMClassifier(categories=declared.categories).categories == declared.clone().categories == ("id", "when")
    late.run_batch(events, y)
    late.keep_categories(["id"])
    late = CPMClassifier.from_state(*late.state())
    late.run_batch(events, y)
    assert [notice.split("'")[1] for notice in late.notices] == ["when"]
    with raises(TypeError, parameter="categories"):
        CPMClassifier(categories="id")


def test_a_label_that_looks_like_an_identifier_is_warned_of_once(caplog):
    X = np.zeros((600, 1))
    y = [f"id-{i}" if i % 3 else "known" for i in range(600)]
    single, many, resumed = CPMClassifier(), CPMClassifier(), CPMClassifier()
    for x, label in zip(X.tolist(), y, strict=True):
        single.learn_one({0: x[0]}, label)
    many.learn_many(X, y)
    resumed.learn_many(X[:300], y[:300])
    resumed = CPMClassifier.from_state(*resumed.state())
    resumed.learn_many(X[300:], y[300:])
    resumed = CPMClassifier.from_state(*resumed.state())
    (notice,) = single.notices
    assert notice.startswith("the label looks like an identifier")
    assert "250 classes in the first 374 learned events" in notice
    assert notice.endswith("(check `y`, or --label)")
    assert many.notices == resumed.notices == [notice]
    assert [record.getMessage() for record in caplog.records] == [notice] * 3


def test_many_recurring_classes_are_not_identifiers(caplog):
    model = CPMClassifier(n_faces=1)
    model.learn_many(np.zeros((1500, 1)), [i // 3 % 250 for i in range(1500)])
    assert len(model.classes_) == 250
    assert model.notices == []
    assert not caplog.records


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.filterwarnings("ignore:all 2 columns:RuntimeWarning")
def test_a_batch_run_without_learning_is_predicting(make):
    X, y = ring(200)
    model = make()
    codes, scores = model.run_batch(X, y.tolist())
    before = knowledge(model)
    assert codes[0] == -1
    assert math.isnan(scores[0])
    codes, scores = model.run_batch(X, [None] * 200, learn=False)
    assert [model.classes_[code] for code in codes] == model.predict_many(X).tolist()
    np.testing.assert_array_equal(scores, model.predict_proba_many(X).max(axis=1))
    model.run_batch(X, [None] * 200)
    model.test_then_train(X, [NAN] * 200)
    model.learn_many(X, y, np.zeros(200))
    assert knowledge(model) == before


# Labels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "y",
    [
        (1, 0, None, 1),
        np.array([1.0, 0.0, NAN, 1.0]),
        np.array([1, 0, None, 1], object),
        pd.Series([1, 0, None, 1]),
        pd.Series([1, 0, None, 1], dtype="int64[pyarrow]"),
        pl.Series([1, 0, None, 1]).to_arrow(),
    ],
    ids=lambda y: f"{type(y).__module__.split('.')[0]} {getattr(y, 'dtype', type(y).__name__)}",
)
def test_labels_have_any_container_and_missing_ones_are_only_predicted(y):
    X = np.array([[0.0], [1.0], [1.0], [0.0]])
    expected = CPMClassifier()
    expected.learn_many(X[[0, 1, 3]], [1, 0, 1])
    model = CPMClassifier()
    model.test_then_train(X, y)
    assert model.classes_ == [1, 0]
    np.testing.assert_array_equal(model.state()[1]["weights"], expected.state()[1]["weights"])


def test_series_of_predictions_go_with_their_frame():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0]}, index=[7, 7, 9])
    for y, dtype in (
        ([True, False, True], bool),
        ([3, 4, 3], np.int64),
        ([0.5, 1.5, 0.5], float),
        (["x", 1, "x"], object),
    ):
        model = CPMClassifier()
        model.learn_many(frame, y)
        series = model.predict_many(frame)
        assert series.dtype == dtype
        assert series.index.equals(frame.index)
        proba = model.predict_proba_many(frame)
        assert proba.index.equals(frame.index)
        assert proba.columns.tolist() == list(dict.fromkeys(y))


def test_polars_columns_have_distinct_names_of_labels():
    frame = pl.DataFrame({"a": [1.0, 2.0]})
    for y, names in (([1, 2], ["1", "2"]), ([1, "1"], ["1", "'1'"]), ([True, "True"], ["True", "'True'"])):
        model = CPMClassifier()
        model.learn_many(frame, y)
        assert model.predict_proba_many(frame).columns == names


def test_polars_predictions_keep_their_type_where_the_first_are_unknown():
    frame = pl.DataFrame({"a": [1.0, 2.0, 3.0]})
    assert CPMClassifier().test_then_train(frame, [5, 5, 5]).to_list() == [None, 5, 5]
    assert CPMClassifier().test_then_train(frame, ["x", "x", "x"]).to_list() == [None, "x", "x"]


# Invalid input ---------------------------------------------------------------------------------------------------

GOOD = [{"a": 1.0, "b": 2.0}, {"a": 3.0, "s": "x"}]


def bad_batches() -> list[Any]:
    infinite, nested = {"new": 1.0, "a": math.inf}, {"new": 1.0, "a": [1]}
    return [
        pytest.param([GOOD[0], infinite], [0, 1], None, BadRows, id="infinite"),
        pytest.param([GOOD[0], nested], [0, 1], None, BadRows, id="nested"),
        pytest.param([GOOD[0], infinite], [0, None], None, BadRows, id="infinite without label"),
        pytest.param(np.array([[1.0, 2.0], [-math.inf, 1.0]]), [0, 1], None, BadRows, id="infinite in an array"),
        pytest.param(pd.DataFrame({"new": [1.0, math.inf]}), [0, 1], None, BadRows, id="infinite in a frame"),
        pytest.param(pl.DataFrame({"new": [[1], [2]]}), [0, 1], None, BadRows, id="nested in a frame"),
        pytest.param(scipy.sparse.csr_array([[1.0], [math.inf]]), [0, 1], None, BadRows, id="infinite in a matrix"),
        pytest.param({"new": [1.0], "a": [1.0, 2.0]}, [0, 1], None, ValueError, id="unequal columns"),
        pytest.param([{"new": 1.0}, GOOD[0]], [0, [1]], None, TypeError, id="unhashable label"),
        pytest.param([{"new": 1.0}, GOOD[0]], [0], None, ValueError, id="too few labels"),
        pytest.param([{"new": 1.0}, GOOD[0]], ["new", 1], [1.0], ValueError, id="too few weights"),
        pytest.param([{"new": 1.0}, GOOD[0]], ["new", 1], [1.0, -1.0], ValueError, id="negative weight"),
        pytest.param([{"new": 1.0}, GOOD[0]], ["new", 1], [1.0, 1e101], ValueError, id="weight too large"),
        pytest.param("text", [0, 1], None, TypeError, id="no rows"),
        pytest.param(np.ones(2), [0, 1], None, ValueError, id="one dimension"),
    ]


@each_choice(("way", ["learn_many", "test_then_train"]), (("X", "y", "w", "error"), bad_batches()))
def test_a_bad_batch_changes_nothing(way, X, y, w, error):
    if way != "test_then_train" and None in y:
        y = [0, 1]
    model = CPMClassifier()
    model.learn_many(GOOD * 5, [0, 1] * 5)
    before = snapshot(model)
    with pytest.raises(error):
        getattr(model, way)(X, y, w=w)
    assert snapshot(model) == before
    model.learn_many(GOOD, [0, 1])  # and training continues


@pytest.mark.parametrize(
    ("x", "y", "w", "error"),
    [
        ({"new": 1.0, "a": math.inf}, 0, 1.0, ValueError),
        ({"a": 1.0, "b": 1e101}, 0, 1.0, ValueError),
        ({"new": 1.0, "a": (1, 2)}, "new", 1.0, TypeError),
        ({"new": 1.0}, NAN, 1.0, ValueError),
        ({"new": 1.0}, [0], 1.0, TypeError),
        ({"new": 1.0}, "new", -1.0, ValueError),
        ({"new": 1.0}, "new", math.inf, ValueError),
        ({"new": 1.0}, "new", "heavy", ValueError),
        ([1.0, 2.0], 0, 1.0, (TypeError, AttributeError)),
    ],
    ids=str,
)
def test_a_bad_event_changes_nothing(x, y, w, error):
    model = CPMClassifier()
    for i in range(10):
        model.learn_one({"a": float(i), "b": 1.0}, i % 2)
    before = snapshot(model)
    with pytest.raises(error):
        model.learn_one(x, y, w)
    assert snapshot(model) == before


@pytest.mark.parametrize(("make", "error"), [(CPMClassifier, MemoryError), (StreamSVMClassifier, KeyboardInterrupt)])
def test_a_learner_that_fails_to_grow_continues_as_if_nothing_was_asked(make, error, monkeypatch):
    first = [{"a": float(i)} for i in range(4)]
    further = [{"a": float(i % 3), **{f"b{j}": float(i % (j + 2)) for j in range(9)}} for i in range(300)]
    labels = [f"c{i % 9}" for i in range(300)]
    model, alone = make(), make()
    for each in model, alone:
        each.learn_many(first, ["c0", "c1"] * 2)

    def fail(*_, **__):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(make, "_new_state", fail)
        with pytest.raises(error):
            model.learn_many(further, labels)
    for each in model, alone:
        each.predict_proba_one(further[1])
        each.learn_many(further, labels)
    assert model.n_events_learned == 304
    assert snapshot(model) == snapshot(alone)


@pytest.mark.parametrize("make", [partial(CPMClassifier, scaling="rank"), StreamSVMClassifier])
def test_predicting_changes_nothing(make):
    model = make()
    model.learn_many(GOOD * 5, [0, 1] * 5)
    before = knowledge(model)
    for x in ({"a": 9.0}, {"unseen": 1.0}, {"s": "unseen"}, {"s": 1.0}, {}, Counter(a=1, unseen=2)):
        model.predict_one(x)
        model.predict_proba_one(x)
        model.predict_many([x])
        model.predict_proba_many([x])
    assert knowledge(model) == before


# Parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "params", "error", "parameter"),
    [
        (CPMClassifier, {"n_faces": True}, TypeError, "n_faces"),
        (CPMClassifier, {"l2": 0}, ValueError, "l2"),
        (CPMClassifier, {"horizon": math.inf}, ValueError, "horizon"),
        (CPMClassifier, {"entropy": 1.0}, ValueError, "entropy"),
        (CPMClassifier, {"scaling": "minmax"}, ValueError, "scaling"),
        (CPMClassifier, {"class_weight": {"a": -1}}, ValueError, "class_weight['a']"),
        (BSGDClassifier, {"budget": 2.5}, TypeError, "budget"),
        (BSGDClassifier, {"learning_rate": 0.0}, ValueError, "learning_rate"),
        (BSGDClassifier, {"learning_rate": 1.0, "l2": 1.0}, ValueError, "learning_rate"),
        (BSGDClassifier, {"loss": "lin"}, ValueError, "loss"),
        (BSGDClassifier, {"merges": 12}, ValueError, "merges"),
        (BSGDClassifier, {"class_weight": "even"}, ValueError, "class_weight"),
        (StreamSVMClassifier, {"effort": "most"}, ValueError, "effort"),
        (StreamSVMClassifier, {"members": ()}, TypeError, "members"),
        (StreamSVMClassifier, {"members": ("woods",)}, ValueError, "members[0]"),
        (StreamSVMClassifier, {"vote_window": 0}, ValueError, "vote_window"),
        (StreamSVMClassifier, {"label_autocorrelation": 1}, TypeError, "label_autocorrelation"),
        (StreamSVMClassifier, {"max_features": 1.5}, TypeError, "max_features"),
    ],
    ids=str,
)
def test_parameters_are_refused_by_name(make, params, error, parameter):
    with raises(error, parameter=parameter):
        make(**params)


# River -----------------------------------------------------------------------------------------------------------


def test_all_checks_of_river_for_mini_batch_classifiers_are_run():
    """River omits some silently if pandas or scikit-learn is not installed."""
    assert importlib.util.find_spec("pandas")
    assert importlib.util.find_spec("sklearn")
    general, on_data, n_data_sets, on_long_streams = 15, 15, 3, 1
    for params in CPM_SETTINGS:
        n_checks = len(list(checks.yield_checks(CPMClassifier(**params))))
        assert n_checks == general + (on_data + on_long_streams) * n_data_sets
    assert CPMClassifier()._unit_test_skips() == set()
