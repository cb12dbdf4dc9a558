"""Models that enter the learner: only where they are better, by a test, and with nothing else changed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from streamsvm import BSGDClassifier, CPMClassifier, IndexedBCD, RefitClassifier, SampledCuts, SmoothedNewton
from streamsvm.online import StreamSVMClassifier
from streamsvm.refit import Every, Latest
from streamsvm.refit.adoption import ADOPTED, GIVEN_UP, TRIED, Adoption
from streamsvm.refit.renewal import NewFaces, NewVectors, renewed, scaled_rows
from streamsvm.refit.solvers import Given, Solution, Task
from tests.learners import ring, snapshot

# Refits begin after so many labelled events, and enter so many later.
EVERY, DELAY = 512, 64


class WrongNewton(SmoothedNewton):
    """One that takes each side for the other."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        return super().fit(X, ~y, sample_weight)


class WrongCuts(SampledCuts):
    """One that takes each of two classes for the other."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        return super().fit(X, 1 - y, sample_weight)


def machine(**params: Any) -> CPMClassifier:
    return CPMClassifier(n_faces=3, **params)


def kernel_machine(**params: Any) -> BSGDClassifier:
    return BSGDClassifier(budget=30, **params)


PAIRS: dict[str, tuple[Callable[..., Any], Any]] = {
    "newton": (machine, "newton"),
    "bcd": (machine, "bcd"),
    "SmoothedNewton": (machine, SmoothedNewton()),
    "IndexedBCD": (machine, IndexedBCD()),
    "cuts": (kernel_machine, "cuts"),
    "SampledCuts": (kernel_machine, SampledCuts(budget=10)),
}
# Steps so small that what was learned from wrong labels stays for long.
STUBBORN: dict[type, dict[str, Any]] = {
    CPMClassifier: {"l2": 1.0, "horizon": 100_000},
    BSGDClassifier: {"learning_rate": 1e-3},
}


def adopting(learner: Any, solver: Any, **params: Any) -> RefitClassifier:
    params = {"window": Latest(EVERY), "trigger": Every(EVERY), "delay": DELAY} | params
    return RefitClassifier(learner, solver, hand_over="adopt", **params)


def halves(n: int, seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Two sides of a line."""
    X = np.random.default_rng(seed).normal(size=(n, 2))
    return X, X[:, 0] + X[:, 1] > 0.3


def misled(make: Callable[..., Any], solver: Any, **params: Any) -> RefitClassifier:
    """One whose learner was taught the wrong labels first."""
    model = adopting(make(**STUBBORN[type(make())]), solver, **params)
    X, y = halves(4_000, seed=7)
    model.model.learn_many(X, ~y)
    return model


def known(model: RefitClassifier) -> Any:
    """All it knows, but how long refits took."""
    header, arrays = snapshot(model)  # type: ignore[arg-type]
    header["refits"] = [note | {"seconds": 0.0} for note in header["refits"]]
    return header, arrays


# Who goes with whom ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("learner", "solver", "named"),
    [
        (CPMClassifier(), "cuts", "newton"),
        (CPMClassifier(), "trees", "IndexedBCD"),
        (CPMClassifier(), LogisticRegression(), "SmoothedNewton"),
        (BSGDClassifier(), "newton", '"cuts"'),
        (BSGDClassifier(), "trees", "SampledCuts"),
        (BSGDClassifier(), SampledCuts(kernel="linear"), "gaussian"),
        (StreamSVMClassifier(), "newton", "vote"),
    ],
)
def test_unfit_pairs_are_refused_and_the_fitting_ones_named(learner: Any, solver: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        adopting(learner, solver)


# Forced both ways -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
def test_a_challenger_that_is_right_takes_over_within_128_events(pair: str) -> None:
    model = misled(*PAIRS[pair])
    before, (X, y) = model.model, halves(EVERY + DELAY + 128 + 400)
    model.learn_many(X[: EVERY + DELAY], y[: EVERY + DELAY])
    assert model.refits[-1]["outcome"] == TRIED
    assert model.model is before
    model.learn_many(X[EVERY + DELAY : -400], y[EVERY + DELAY : -400])
    assert model.refits[-1]["outcome"] == ADOPTED
    assert model.model is not before
    right = (model.test_then_train(X[-400:], y[-400:]) == y[-400:]).mean()
    assert right > (before.test_then_train(X[-400:], y[-400:]) == y[-400:]).mean() + 0.1


@pytest.mark.parametrize(
    ("make", "solver"), [(machine, WrongNewton()), (kernel_machine, WrongCuts())], ids=["newton", "cuts"]
)
def test_a_challenger_that_is_wrong_changes_nothing(make: Callable[..., Any], solver: Any) -> None:
    X, y = ring(2_000)
    model, bare = adopting(make(), solver), make()
    found, proba = model.test_then_train(X, y, proba=True)
    expected, expected_proba = bare.test_then_train(X, y, proba=True)
    assert [note["outcome"] for note in model.refits] == [GIVEN_UP] * 3
    assert (found == expected).all()
    assert proba.tobytes() == expected_proba.tobytes()
    assert snapshot(model.model) == snapshot(bare)


def test_while_a_model_is_tried_no_other_is_begun() -> None:
    X, y = ring(1_500)
    model = adopting(machine(), "newton", trigger=Every(100), window=Latest(100))
    model.learn_many(X, y)
    gaps = np.diff([note["event"] for note in model.refits])
    assert (gaps > 100).any()
    assert all(note["outcome"] != TRIED for note in model.refits[:-1])


# What stays -----------------------------------------------------------------------------------------------------------


def task_for(learner: Any, X: Any, y: Any, solver: Any) -> tuple[Task, Adoption]:
    """The task of a learner and a window of the rows it has learned last."""
    model = RefitClassifier(learner, solver, hand_over="adopt", window=Latest(len(X)))
    model.learn_many(X, y)
    assert model._adoption is not None
    return Task(model._memory.snapshot(), X.shape[1], learner=model.model._branch()), model._adoption


@pytest.mark.parametrize("learner", [machine(average=50), kernel_machine(average=50, bias=True)])
def test_the_challenger_keeps_columns_statistics_and_metric(learner: Any) -> None:
    X, y = ring(400)
    task, adoption = task_for(learner, X, y, "newton" if isinstance(learner, CPMClassifier) else "cuts")
    before = snapshot(task.learner)
    adoption.challenge(task.learner, adoption.solver.solve(task))
    assert adoption._challenger is not None
    (header, arrays), (own_header, own_arrays) = snapshot(adoption._challenger), before
    assert {**header, "params": None} == {**own_header, "params": None}
    kept = [name for name in arrays if name.startswith("rows.") or name in ("relevance", "theta", "counts")]
    assert len(kept) > 5
    assert all(arrays[name] == own_arrays[name] for name in kept)
    assert snapshot(task.learner) == before


def test_one_face_is_what_the_solver_finds_by_hand() -> None:
    X, y = ring(300)
    task, _ = task_for(CPMClassifier(n_faces=1), X, y, SmoothedNewton(tol=1e-6))
    found = NewFaces(Given(SmoothedNewton(tol=1e-6))).solve(task).model
    by_hand = SmoothedNewton(tol=1e-6).fit(task.learner.model.scaler(X), task.window.codes)
    np.testing.assert_allclose(found.faces[:, 0], by_hand.model_.coef, atol=0.01)
    np.testing.assert_allclose(found.biases[:, 0], by_hand.model_.intercept, atol=0.01)


def test_vectors_are_what_the_solver_finds_by_hand() -> None:
    X, y = ring(300)
    task, _ = task_for(kernel_machine(metric="fixed"), X, y, "cuts")
    found = NewVectors(Given(SampledCuts())).solve(task).model
    by_hand = SampledCuts(gamma=task.learner.model.gamma, budget=30).fit(
        task.learner.model.scaler(X), task.window.codes
    )
    np.testing.assert_array_equal(found.vectors, by_hand.model_.vectors)
    np.testing.assert_array_equal(found.coefs, by_hand.model_.coefs)


def test_several_faces_follow_a_boundary_that_no_plane_does() -> None:
    X, y = ring(600)
    task, _ = task_for(CPMClassifier(n_faces=6), X, y, SmoothedNewton())
    polytopes, planes = NewFaces(Given(SmoothedNewton())), NewFaces(Given(SmoothedNewton()))
    split, alike = (
        polytopes._fit(task, {"faces": "own", "pace": 1.0}),
        planes._fit(task, {"faces": "alike", "pace": 1.0}),
    )
    fresh, labels = ring(1_000, seed=3)
    codes = np.array([task.learner.classes_.index(label) for label in labels.tolist()])
    assert (split.decision_function(fresh).argmax(axis=1) == codes).mean() > 0.9
    assert (alike.decision_function(fresh).argmax(axis=1) == codes).mean() < 0.8


def test_a_class_that_the_window_lacks_keeps_its_faces() -> None:
    X, y = ring(300)
    learner = CPMClassifier(n_faces=2)
    model = RefitClassifier(learner, "newton", hand_over="adopt", window=Latest(200))
    model.learn_many(X + 5.0, ["far"] * 300)
    model.learn_many(X, y)
    assert model._adoption is not None
    task = Task(model._memory.snapshot(), 2, learner=model.model._branch())
    model._adoption.challenge(model.model, model._adoption.solver.solve(task))
    challenger = model._adoption._challenger
    assert isinstance(challenger, CPMClassifier)
    np.testing.assert_array_equal(challenger.model.faces[0], model.model.model.faces[0])
    assert (challenger.model.faces[1:] != model.model.model.faces[1:]).all()


@pytest.mark.parametrize("scaling", ["none", "standard", "decayed", "rank"])
def test_sparse_rows_are_scaled_as_dense_ones(scaling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = ring(200)
    X[::3, 1] = np.nan
    task, _ = task_for(CPMClassifier(scaling=scaling), X, y, "newton")
    scaler = task.learner._scaler()
    dense = scaled_rows(task, scaler)
    np.testing.assert_array_equal(dense, scaler(X))
    monkeypatch.setattr("streamsvm.refit.renewal.is_wide", lambda task: True)
    np.testing.assert_array_equal(scaled_rows(task, scaler).toarray(), dense)


@pytest.mark.parametrize(
    ("make", "solver", "seed"), [(machine, "newton", 0), (kernel_machine, "cuts", 1)], ids=["newton", "cuts"]
)
def test_where_smaller_steps_are_better_the_learner_goes_on_with_them(make: Any, solver: str, seed: int) -> None:
    # Of rows like these, on which nothing drifts, some ask for smaller steps, and some do not.
    X, noise = np.split(np.random.default_rng(seed).normal(size=(2_064, 21)), [20], axis=1)
    model, bare = adopting(make(), solver, trigger=Every(2_000), window=Latest(2_000)), make()
    model.learn_many(X, X[:, 0] + noise[:, 0] > 0.0)
    assert model._adoption is not None
    challenger: Any = model._adoption._challenger
    assert model.refits[0]["settings"]["pace"] < 1.0
    assert model.model._get_params() == bare._get_params()
    if isinstance(bare, BSGDClassifier):
        assert challenger.learning_rate < bare.learning_rate
    else:
        assert challenger.horizon > bare.horizon
    again = RefitClassifier.from_state(*model.state())
    assert snapshot(again._adoption._challenger) == snapshot(challenger)  # type: ignore[union-attr, arg-type]
    assert again.learner._get_params() == bare._get_params()


@pytest.mark.parametrize(
    "learner", [machine(), kernel_machine(), kernel_machine(heads=(("log", 0.9), ("hinge", None)))]
)
def test_steps_stay_what_a_learner_can_have_however_often_they_change(learner: Any) -> None:
    X, y = ring(200)
    task, adoption = task_for(learner, X, y, "newton" if isinstance(learner, CPMClassifier) else "cuts")
    found = adoption.solver.solve(task)
    for pace in (100.0, 0.01):
        renewed_often = task.learner
        for _ in range(10):
            renewed_often = renewed(renewed_often, Solution(found.model, {"pace": pace}))
        renewed_often.learn_many(X, y)
        assert snapshot(type(learner).from_state(*renewed_often.state())) == snapshot(renewed_often)


# However events come --------------------------------------------------------------------------------------------------


def growing_stream(n: int, grows: int) -> tuple[list[dict[str, float]], list[Any]]:
    """Rows among which, while a model is tried, a new class and then a new column come."""
    X, y = ring(n)
    events = [{"x": a, "y": b} | ({"late": a * b} if i > grows + 10 else {}) for i, (a, b) in enumerate(X.tolist())]
    labels = ["third" if i > grows and i % 7 == 0 else ("in" if inside else "out") for i, inside in enumerate(y)]
    return events, labels


@pytest.mark.parametrize(("make", "solver"), [(machine, "newton"), (kernel_machine, "cuts")], ids=["newton", "cuts"])
class TestHoweverEventsCome:
    def test_batches_give_what_single_events_do(self, make: Callable[..., Any], solver: Any) -> None:
        X, y = growing_stream(800, 355)
        runs = []
        for size in (1, 37, 800):
            model = adopting(make(), solver, trigger=Every(250), window=Latest(250), delay=100)
            for at in range(0, len(X), size):
                if size == 1:
                    model.learn_one(X[at], y[at])
                else:
                    model.test_then_train(X[at : at + size], y[at : at + size])
            runs.append(known(model))
        assert runs[0] == runs[1] == runs[2]
        assert runs[0][0]["adoption"]["n_tried"] > 0

    @pytest.mark.parametrize("at", [270, 325, 400], ids=["solving", "tried", "grown"])
    def test_a_trial_goes_on_where_it_was(self, make: Callable[..., Any], solver: Any, at: int) -> None:
        X, y = growing_stream(700, 335)
        model = adopting(make(), solver, trigger=Every(256), window=Latest(256))
        model.learn_many(X[:at], y[:at])
        assert (model._asked is not None) == (at < 256 + DELAY)
        saved, pickled = RefitClassifier.from_state(*model.state()), pickle.loads(pickle.dumps(model))
        for each in (model, saved, copy.deepcopy(model), pickled):
            each.test_then_train(X[at:], y[at:])
            assert known(each) == known(model)

    def test_one_that_took_over_goes_on_where_it_was(self, make: Callable[..., Any], solver: Any) -> None:
        X, y = halves(900)
        model = misled(make, solver)
        model.learn_many(X, y)
        assert model.refits[0]["outcome"] == ADOPTED
        other = RefitClassifier.from_state(*model.state())
        for each in (model, other):
            each.learn_many(X, y)
        assert known(other) == known(model)
