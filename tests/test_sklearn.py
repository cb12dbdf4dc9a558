"""Online learners in scikit-learn's tools."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sklearn.preprocessing import StandardScaler

from streamsvm import BSGDClassifier, CPMClassifier, DelayedClassifier, RefitClassifier, StreamSVMClassifier
from streamsvm.parameters import ParameterError, ParameterTypeError
from streamsvm.sklearn import StreamClassifier
from tests.errors import raises

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 3))
Y = np.where(X[:, 0] > 0.0, "up", "down")
LOW = StreamSVMClassifier(effort="low", budget=20)
WEIGHTS = "a weight scales the step of a row, which differs from several steps"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("learner", [None, CPMClassifier()], ids=str)
def test_it_keeps_the_protocol_of_scikit_learn(learner):
    from sklearn.utils.estimator_checks import check_estimator  # imports all of scikit-learn

    weighing = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]
    check_estimator(StreamClassifier(learner), expected_failed_checks=dict.fromkeys(weighing, WEIGHTS))


def test_batches_equal_the_results_of_the_learner():
    learner = LOW.clone()
    model = StreamClassifier(LOW)
    for rows in (slice(0, 300), slice(300, 400)):
        learner.learn_many(X[rows], Y[rows])
        model.partial_fit(X[rows], Y[rows])
    expected = learner.predict_proba_many(X[400:])[:, np.argsort(learner.classes_)]
    np.testing.assert_array_equal(model.predict_proba(X[400:]), expected)
    assert model.predict(X[400:]).tolist() == learner.predict_many(X[400:]).tolist()
    fresh = StreamClassifier(LOW).fit(X[:9], Y[:9])
    np.testing.assert_array_equal(model.fit(X[:9], Y[:9]).predict_proba(X), fresh.predict_proba(X))
    assert LOW.n_events_learned == 0


def test_classes_may_be_declared_and_appear_late():
    model = StreamClassifier(LOW).partial_fit(X[:50], np.ones(50, int), classes=[2, 1])
    assert model.classes_.tolist() == [1, 2]
    assert model.predict_proba(X[:1]).tolist() == [[1.0, 0.0]]
    model.partial_fit(X[:50], np.zeros(50, int))
    assert model.classes_.tolist() == [0, 1, 2]
    assert (model.predict_proba(X[:9])[:, 2] == 0.0).all()
    assert model.predict(X[:9]).dtype == model.classes_.dtype


def test_rows_of_weight_0_are_not_learned():
    weights = (np.arange(600) % 3).astype(float)
    some = StreamClassifier(LOW).fit(X, Y, weights)
    same = StreamClassifier(LOW).fit(X[weights > 0], Y[weights > 0], weights[weights > 0])
    np.testing.assert_array_equal(some.predict_proba(X), same.predict_proba(X))
    assert some.learner_.n_events_learned == 400
    with pytest.raises(NotFittedError):
        StreamClassifier(LOW).predict(X)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_have_text_and_missing_values(frame):
    colour = RNG.choice(["red", "blue", None], 600).tolist()
    rows = frame({"size": np.where(X[:, 0] > 1.0, np.nan, X[:, 0]), "colour": colour})
    y = [c == "red" for c in colour]
    model = StreamClassifier(LOW).fit(rows[:400], y[:400], np.ones(400))
    assert model.feature_names_in_.tolist() == ["size", "colour"]
    assert model.score(rows[400:], y[400:]) > 0.95
    with raises(ValueError, named="feature names"):
        model.predict(rows[["size"]])


def test_rows_without_names_have_the_columns_of_the_frame_and_the_reverse():
    frame = pd.DataFrame(X, columns=list("abc"))
    named, plain = StreamClassifier(LOW).fit(frame, Y), StreamClassifier(LOW).fit(X, Y)
    with pytest.warns(UserWarning, match="valid feature names"):
        from_array = named.predict_proba(X)
    with pytest.warns(UserWarning, match="without feature names"):
        from_frame = plain.predict_proba(frame)
    np.testing.assert_array_equal(from_array, named.predict_proba(frame))
    np.testing.assert_array_equal(from_frame, plain.predict_proba(X))
    numbered = StreamClassifier(LOW).fit(pd.DataFrame(X), Y)
    assert not hasattr(numbered, "feature_names_in_")
    np.testing.assert_array_equal(numbered.predict_proba(X), from_frame)


def test_columns_without_names_keep_their_order():
    frame = pd.DataFrame(X)
    model = StreamClassifier(LOW).fit(frame[:300], Y[:300])
    with raises(ValueError, named="order"):
        model.predict(frame[[2, 1, 0]])
    with raises(ValueError, named="order"):
        model.partial_fit(frame[[2, 1, 0]], Y)
    other = frame.rename(columns={0: 7})
    np.testing.assert_array_equal(model.predict_proba(other), model.predict_proba(frame))
    model.fit(X[:300], Y[:300])
    np.testing.assert_array_equal(model.predict_proba(frame[[2, 1, 0]]), model.predict_proba(X[:, ::-1]))


def test_lazy_frames_and_arrow_streams_are_tables():
    frame = pl.DataFrame(X)
    wanted = StreamClassifier(LOW).fit(frame, Y).predict_proba(frame)
    for table in (pl.DataFrame.lazy, lambda frame: frame.to_arrow().to_reader()):
        model = StreamClassifier(LOW).fit(table(frame), Y)
        np.testing.assert_array_equal(model.predict_proba(table(frame)), wanted)


@pytest.mark.parametrize(
    ("labels", "classes"), [(np.ones(300, int), None), (Y[300:], "up"), (Y[300:], [["up", "down"]] * 2)]
)
def test_refused_labels_change_nothing(labels, classes):
    model = StreamClassifier(LOW).partial_fit(X[:300], Y[:300].astype(object))
    before = model.predict_proba(X)
    with pytest.raises((TypeError, ValueError)):
        model.partial_fit(X[300:], labels, classes)
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_parameters_of_the_learner_are_searched():
    search = GridSearchCV(
        StreamClassifier(LOW), {"learner__effort": ["low"], "learner__budget": [5, 10]}, cv=TimeSeriesSplit(2)
    ).fit(X, Y)
    best = search.best_estimator_.learner_
    assert (best.effort, best.budget) == ("low", search.best_params_["learner__budget"])
    choice = GridSearchCV(StreamClassifier(), {"learner": [LOW, CPMClassifier()]}, cv=TimeSeriesSplit(2)).fit(X, Y)
    assert isinstance(choice.best_estimator_.learner_, StreamSVMClassifier | CPMClassifier)


def test_parameters_are_got_set_and_cloned():
    model = StreamClassifier(BSGDClassifier(budget=7))
    assert model.get_params()["learner__budget"] == 7
    twin = clone(model).set_params(learner__budget=8)
    assert (model.learner.budget, twin.learner.budget, twin.learner.gamma) == (7, 8, None)
    assert StreamClassifier().set_params(learner__effort="high").learner.effort == "high"
    both = StreamClassifier().set_params(learner__n_faces=2, learner=CPMClassifier(), learner__l2=0.5)
    assert (both.learner.n_faces, both.learner.l2) == (2, 0.5)


def test_wrong_learners_and_parameters_are_refused():
    for name in ("learner__bogus", "bogus"):
        with raises(ValueError, named="bogus"):
            StreamClassifier(LOW).set_params(**{name: 1})
    with raises(ParameterError, parameter="budget"):
        StreamClassifier(LOW).set_params(learner__budget=-1)
    with raises(ParameterTypeError, parameter="learner"):
        StreamClassifier(StandardScaler()).fit(X, Y)


def test_decisions_follow_costs_and_refits_are_possible():
    costs = StreamClassifier(StreamSVMClassifier(effort="low", abstain=0.01)).fit(X, Y)
    decided = costs.predict(X)
    assert None in decided
    assert set(decided) == {None, "up", "down"}
    refits = StreamClassifier(RefitClassifier(LOW.clone(), "newton")).fit(X, Y)
    assert refits.score(X, Y) > 0.9


@pytest.mark.parametrize("name", ["fit", "partial_fit", "predict", "predict_proba", "score"])
def test_methods_of_scikit_learn_are_absent_from_learners_and_errors_name_others(name):
    for learner in (LOW, RefitClassifier(CPMClassifier(), "newton"), DelayedClassifier(CPMClassifier())):
        assert not hasattr(learner, name)
        with raises(AttributeError, named="StreamClassifier", name=name):
            getattr(learner, name)
        with raises(AttributeError, name="bogus"):
            _ = learner.bogus
