"""Learner with refits: triggers, results, votes, and equality when resumed."""

from __future__ import annotations

import copy
import gc
import logging
import os
import pickle
import threading
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray
from river import drift
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import streamsvm
from streamsvm import BSGDClassifier, CPMClassifier, RefitClassifier, SampledCuts, SmoothedNewton, StreamSVMClassifier
from streamsvm.features.rows import EncodedRows
from streamsvm.features.space import FeatureSpace
from streamsvm.models import ArchiveError, Trees
from streamsvm.parameters import ParameterError
from streamsvm.refit import (
    Adaptive,
    Every,
    EveryTime,
    Growing,
    Latest,
    OnDemand,
    OnDrift,
    Since,
    jobs,
    refitted_model,
    schedule,
    solver_process,
    vote_kernels,
)
from streamsvm.refit.refitted_model import RefittedModel
from streamsvm.refit.solver_process import SolverProcess
from streamsvm.refit.solvers import SOLVERS, seeded, solver_of, trees_of
from streamsvm.refit.tasks import Solution, Task
from streamsvm.refit.vote import ModelVote
from streamsvm.refit.window_rows import WindowRows
from streamsvm.refit.windows import WindowMemory
from tests.choices import each_choice
from tests.commands import wait_for
from tests.errors import raises
from tests.learners import MAKERS, dicts, looped
from tests.refit.solvers import Failing, Moody, Renaming, Short, Slow, Sparse, Told

pytestmark = pytest.mark.usefixtures("lasting_process")

GIVE_UP = jobs.JobHandle.__del__

Rows = NDArray[np.float64]


def events(n: int, seed: int = 0, d: int = 4) -> tuple[Rows, list[str]]:
    """Three classes of strings that are not linearly separable."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    codes = (X[:, 0] * X[:, 1] > 0).astype(int) + (X[:, 2] > 0.8)
    return X, [f"class {code}" for code in codes]


def cheap(solver: Any = "newton", learner: Any = None, **settings: Any) -> RefitClassifier:
    own: dict[str, Any] = {"trigger": Growing(200, 1.5), "delay": 70}
    return RefitClassifier(learner or BSGDClassifier(budget=20), solver, **(own | settings))


def in_parts(model: Any, X: Any, y: list[Any], cuts: tuple[int, ...], times: Any = None) -> tuple[list[Any], Rows]:
    """Return the predictions of a model, in batches."""
    found: list[Any] = []
    probabilities = []
    for a, b in zip((0, *cuts), (*cuts, len(y)), strict=True):
        predicted, proba = model.test_then_train(
            X[a:b], y[a:b], proba=True, times=times if times is None else times[a:b]
        )
        found += predicted.tolist()
        probabilities.append(proba)
    widest = max(proba.shape[1] for proba in probabilities)
    return found, np.vstack([np.pad(proba, ((0, 0), (0, widest - proba.shape[1]))) for proba in probabilities])


def assert_same_refits(one: RefitClassifier, other: RefitClassifier) -> None:
    """Check that both had equal refits, without clock times."""
    assert [{**refit, "seconds": 0} for refit in one.refits] == [{**refit, "seconds": 0} for refit in other.refits]


# Two refits: after 200 and 400 events.
TWICE = {"trigger": Every(200), "window": Latest(200)}

# The start of the process --------------------------------------------------------------------------------------------


def wait_for_earlier_jobs() -> None:
    """Wait for what earlier tests have begun, and would occupy the process."""
    for job in list(jobs._jobs):
        job.wait()


def started_job(model: RefitClassifier) -> Any:
    """Return the job of the running refit when a process has taken it."""
    return wait_for(lambda: (job := model._refits._job.job)._process and job, "a process", every=0.01)


def test_the_start_of_a_process_is_not_the_solver_s_time(monkeypatch):
    wait_for_earlier_jobs()
    solver_process.end_processes()
    ready, may_start = SolverProcess.await_ready, threading.Event()
    monkeypatch.setattr(
        solver_process.SolverProcess, "await_ready", lambda process: may_start.wait() and ready(process)
    )
    X, y = hidden(300)
    model = cheap(Told(), trigger=Every(200), timeout=30.0)
    model.learn_many(X[:210], y[:210])
    job = started_job(model)
    is_over, is_started, waits = job._over.wait, job._process.has_started.wait, []

    def wait_for_the_end(seconds):
        waits.append(seconds)
        return len(waits) > 1 and is_over(seconds)  # the first timeout passes during the start

    def wait_for_the_start():
        waits.append("start")
        may_start.set()
        return is_started()

    monkeypatch.setattr(job._over, "wait", wait_for_the_end)
    monkeypatch.setattr(job._process.has_started, "wait", wait_for_the_start)
    try:
        model.learn_many(X[210:], y[210:])
    finally:
        may_start.set()
    assert waits == [30.0, "start", 30.0]
    assert model.refits[0]["outcome"] == "votes"


# Reproducibility ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("learner", "solver", "settings"),
    [
        ("blend", "newton", TWICE),
        ("cpm", "bcd", TWICE),
        ("cpm", "trees", TWICE),
        ("bsgd", "cuts", TWICE),
        pytest.param("bsgd", "newton", {"trigger": EveryTime(200.0), "window": Since(150.0)}, id="time"),
        pytest.param("bsgd", "newton", {"trigger": OnDrift(drift.ADWIN(delta=0.6), gather=100)}, id="drift"),
        pytest.param("bsgd", "newton", {"trigger": Every(150), "window": Adaptive(300)}, id="adaptive"),
    ],
)
def test_batches_cut_anywhere_are_a_loop(learner, solver, settings):
    X, y = events(600)
    y, times = y[:300] + y[299::-1], np.arange(600.0)  # labels that are independent of their rows
    whole, parts, loop = (cheap(solver, MAKERS[learner](), **settings) for _ in range(3))
    predicted, proba = whole.test_then_train(X, y, times=times, proba=True)
    assert {refit["outcome"] for refit in whole.refits} == {"votes"}
    assert in_parts(parts, X, y, (1, 40, 271, 500), times)[0] == predicted.tolist()
    shares, found = [], []
    for x, label, moment in zip(dicts(X), y, times.tolist(), strict=True):
        shares.append(loop.predict_proba_one(x))
        found.append(loop.predict_one(x))
        loop.learn_one(x, label, time=moment)
    assert found == predicted.tolist()
    np.testing.assert_array_equal([[share.get(c, 0.0) for c in whole.classes_] for share in shares], proba)
    assert_same_refits(whole, loop)
    np.testing.assert_array_equal(whole.predict_proba_many(X[:50]), parts.predict_proba_many(X[:50]))


@pytest.mark.parametrize("least", [0.0, 0.5])
def test_windows_of_rows_with_missing_values_are_equal_to_those_of_a_loop(tmp_path, least):
    X, y = events(90)
    X[np.random.default_rng(1).random(X.shape) < 0.3] = np.nan
    X[:20, 2], X[:, 1] = np.nan, np.nan
    rows = [{k: v for k, v in x.items() if v is not None or i >= least * 90} for i, x in enumerate(dicts(X))]
    loop, *batches = (cheap() for _ in range(4))
    for x, label in zip(rows, y, strict=True):
        loop.predict_one(x)
        loop.learn_one(x, label)
    for model, size in zip(batches, (7, 30, 90), strict=True):
        for i in range(0, 90, size):
            model.test_then_train(rows[i : i + size], y[i : i + size])
        model.save(tmp_path / "batches")
        loop.save(tmp_path / "loop")
        assert (tmp_path / "batches").read_bytes() == (tmp_path / "loop").read_bytes()


def test_sparse_rows_late_columns_and_strings():
    rng = np.random.default_rng(0)
    X = scipy.sparse.random(300, 300, 0.03, random_state=0, format="csr")
    y = np.where(np.asarray(X[:, :150].sum(axis=1)).ravel() > np.asarray(X[:, 150:].sum(axis=1)).ravel(), 1, 0).tolist()
    one, other = cheap(), cheap()
    predicted = one.test_then_train(X, y).tolist()
    assert in_parts(other, X, y, (233, 234, 280))[0] == predicted
    mixed, loop = cheap(), cheap()
    rows = [{"a": rng.normal(), "b": rng.choice(["x", "y", None])} for _ in range(400)]
    rows = [row | ({"late": i / 9} if i > 220 else {}) for i, row in enumerate(rows)]
    labels = [str(row["b"]) + ("+" if row["a"] > 0 else "-") for row in rows]
    assert looped(loop, rows, labels) == mixed.test_then_train(rows, labels).tolist()


def test_a_single_event_beside_the_fast_path_is_predicted_in_its_order():
    """Label autocorrelation applies to it, also after loading and with strings."""
    rng = np.random.default_rng(0)
    rows = [{"a": rng.normal(), "b": "xy"[i % 2]} for i in range(400)]
    labels = ["up" if i // 40 % 2 else "down" for i in range(400)]
    model = cheap(learner=StreamSVMClassifier("low", budget=20), **TWICE)
    model.learn_many(rows, labels)
    model._refits.vote._advantage[()] = 0.5  # the vote predicts
    in_order = model.peek_proba_many(rows[:1])[0].tolist()
    assert in_order != model.predict_proba_many(rows[:1])[0].tolist()
    assert list(model.predict_proba_one(rows[0]).values()) == in_order


AT = {"just begun": 205, "being solved": 240, "voting": 330, "several": 480}


@pytest.mark.parametrize(
    ("solver", "at"),
    [
        ("newton", "just begun"),
        ("trees", "several"),
        (LogisticRegression(C=0.5), "being solved"),
        (GaussianNB(), "voting"),
    ],
    ids=str,
)
def test_a_loaded_learner_continues(tmp_path, solver, at):
    at = AT[at]
    X, y = events(600)
    whole, saved = cheap(solver, **TWICE), cheap(solver, **TWICE)
    predicted, proba = whole.test_then_train(X, y, proba=True)
    first = saved.test_then_train(X[: at - 10], y[: at - 10]).tolist()
    first += looped(saved, X[at - 10 : at], y[at - 10 : at])
    saved.save(tmp_path / "model")
    for again in (streamsvm.load(tmp_path / "model"), copy.deepcopy(saved), pickle.loads(pickle.dumps(saved))):
        second, rest = again.test_then_train(X[at:], y[at:], proba=True)
        assert first + second.tolist() == predicted.tolist()
        np.testing.assert_array_equal(rest, proba[at:])
        assert_same_refits(whole, again)


def test_the_state_of_the_given_learner_is_kept():
    X, y = events(800)
    alone = CPMClassifier()
    alone.learn_many(X[:500], y[:500])
    model = cheap(learner=alone, trigger=OnDemand())
    assert model.n_events_learned == 500
    expected = alone.test_then_train(X[500:], y[500:]).tolist()
    assert model.test_then_train(X[500:], y[500:]).tolist() == expected
    assert model.clone().n_events_learned == 0


class Counting(Told):
    """Counts the rows that it predicts."""

    counts: ClassVar[list[int]] = []

    def predict_proba(self, X: Any) -> Rows:
        self.counts.append(len(X))
        return np.full((len(X), len(self.classes_)), 1.0 / len(self.classes_))


def test_the_stream_waits_for_a_calibration_on_fewer_events_of_many_classes():
    most = [min(400, schedule.CALIBRATION_PROBABILITIES // n_classes) for n_classes in (2, 200)]
    for n_classes, n in zip((2, 200), most, strict=True):
        Counting.counts.clear()
        model = cheap(Counting(), CPMClassifier(n_faces=1), trigger=Every(800), delay=400)
        model.learn_many(np.random.default_rng(0).normal(size=(1_200, 2)), np.arange(1_200) % n_classes)
        assert Counting.counts == [n]
    assert most[0] == 400 > most[1]


@pytest.mark.parametrize("solver", [SmoothedNewton(), SampledCuts(gamma=1e-5)], ids=["planes", "expansion"])
def test_models_of_rows_as_they_are_stay_so(tmp_path, solver):
    X, y = events(700)
    whole = cheap(solver)
    whole.learn_many(1_000.0 * X, y)  # far outside the clipping range of scaled values
    whole.save(tmp_path / "model")
    again = streamsvm.load(tmp_path / "model")
    assert len(whole.refits) == 2
    np.testing.assert_array_equal(again.predict_proba_many(1_000.0 * X), whole.predict_proba_many(1_000.0 * X))


def test_a_damaged_archive_is_refused():
    X, y = events(420)
    model = cheap("trees", **TWICE)
    model.learn_many(X, y)
    header, arrays = model.state()
    RefitClassifier.from_state(header, arrays)
    assert header["job"] is not None
    wrong: list[tuple[str, Any]] = [
        *((name, array[:-1]) for name, array in arrays.items() if name.startswith("member") and len(array)),
        ("member1.left", arrays["member1.left"] * 0),
        ("member1.right", arrays["member1.left"]),
        ("member1.missing", np.roll(arrays["member1.missing"], 1)),
        ("member1.feature", arrays["member1.feature"] + 1_000),
        ("job.columns", arrays["job.columns"] + 1_000),
        ("job.codes", arrays["job.codes"] + 1_000),
        ("stray", np.zeros(1)),
        ("vote.members.active", np.zeros_like(arrays["vote.members.active"])),
    ]
    for name, array in wrong:
        with pytest.raises(ArchiveError):
            RefitClassifier.from_state(header, arrays | {name: array})
    for note in ({"number": [1]}, {"outcome": 1}):
        with pytest.raises(ArchiveError):
            RefitClassifier.from_state({**header, "notes": [{**header["notes"][0], **note}]}, arrays)
    for change in (
        {"solver": {"class": ["os", "system"], "params": {}}},
        {"solver": "nothing"},
        {"window": {"class": "x"}},
    ):
        with pytest.raises(ArchiveError):
            RefitClassifier.from_state({**header, "params": {**header["params"], **change}}, arrays)


def test_a_solver_of_others_is_not_kept_on_disk(tmp_path):
    model = cheap(Failing())
    model.learn_many(*events(20))
    with raises(TypeError, named="Failing"):
        model.save(tmp_path / "model")


# Windows and triggers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOLVERS)
def test_a_refit_is_the_solver_called_by_hand_on_the_same_rows(name):
    X, y = events(500)
    model = cheap(name, window=Latest(200), trigger=Every(400), learner=CPMClassifier())
    model.learn_many(X, y)
    (refit,) = model.refits
    assert (refit["event"], refit["events"]) == (400, 200)
    codes = np.array([model.classes_.index(label) for label in y])
    memory = Latest(200).begin()
    memory.add(encoded(X[200:400]), codes[200:400])
    by_hand = solver_of(name).solve(Task(memory.snapshot(), 4))
    assert by_hand.settings == refit["settings"]
    arrays = model.state()[1]
    for part, array in by_hand.model.state()[1].items():
        np.testing.assert_array_equal(arrays[f"member1.{part}"], array)


def encoded(X: Rows) -> EncodedRows:
    return FeatureSpace(100).encode(X, np.ones(len(X), bool))


@each_choice(("name", SOLVERS), ("n_classes", [2, 3]))
def test_a_member_predicts_like_its_model(name, n_classes):
    X, labels = events(700)
    X[1::7, 1] = np.nan
    codes = np.minimum([int(label[-1]) for label in labels], n_classes - 1) * 2  # the learner knows other labels
    memory = Latest(700).begin()
    space = FeatureSpace(100)
    memory.add(space.encode(X, np.ones(700, bool)), codes)
    solution = solver_of(name).solve(Task(memory.snapshot(), 4))
    member, proba = RefittedModel(solution, 1, inverse_temperature=3.0), np.zeros((700, 6))
    member.evaluate(space.encode(X), np.ones(700, np.int64), proba)
    scores = 3.0 * solution.model.decision_function(X)
    terms = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = np.zeros((700, 6))
    expected[:, solution.model.classes] = terms / terms.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(proba, expected, atol=2e-5)
    if name in ("trees", "cuts"):
        assert (np.array(solution.model.classes)[scores.argmax(axis=1)] == codes).mean() > 0.7
    # Passed one by one, or only some of them, they are bit-identical.
    some, one_by_one = np.arange(700) % 3 == 0, np.zeros((700, 6))
    for i in np.flatnonzero(some):
        member.evaluate(space.encode(X[i : i + 1]), np.ones(1, np.int64), one_by_one[i : i + 1])
    partly = np.zeros((700, 6))
    member.evaluate(space.encode(X), some.astype(np.int64), partly)
    np.testing.assert_array_equal(partly, one_by_one)
    np.testing.assert_array_equal(partly[some], proba[some])


@pytest.mark.parametrize("name", SOLVERS)
def test_a_column_without_a_value_in_the_window_is_no_obstacle(name):
    X = np.array([[np.nan, float(i)] for i in range(100)])
    rows = EncodedRows(X.ravel(), np.arange(2), np.arange(0, 201, 2), True)
    window = WindowRows(rows, np.arange(100) // 50, np.ones(100), np.full(100, np.nan), np.arange(100))
    assert solver_of(name).solve(Task(window, 2)).model.predict(X[::99]) == [0, 1]


@pytest.mark.parametrize("n_classes", [2, 4])
def test_trees_as_arrays_are_those_of_scikit_learn(n_classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    y = np.digitize(X[:, 0] + X[:, 1] ** 2, np.linspace(0, 2, n_classes - 1))
    X[rng.random(X.shape) < 0.1] = np.nan
    model = HistGradientBoostingClassifier(max_iter=20).fit(X, y)
    scores = trees_of(model).decision_function(X)
    if n_classes == 2:
        np.testing.assert_allclose(scores[:, 1] - scores[:, 0], model.decision_function(X))
    else:
        np.testing.assert_allclose(scores, model.decision_function(X))


def test_trees_of_many_leaves_say_the_same_to_the_bit_walked_and_masked(monkeypatch):
    rng, said = np.random.default_rng(0), []
    X = rng.normal(size=(600, 3)).round(1)
    X[rng.random(X.shape) < 0.1] = np.nan
    model = HistGradientBoostingClassifier(max_iter=3, max_leaf_nodes=80, min_samples_leaf=2)
    trees = trees_of(model.fit(X[:400], rng.integers(0, 3, 400)))
    for mask_words in (0, refitted_model.MASK_WORDS):
        monkeypatch.setattr(refitted_model, "MASK_WORDS", mask_words)
        said.append(np.zeros((len(X), 3)))
        RefittedModel(Solution(trees, {}), 1).evaluate(encoded(X), np.ones(len(X), int), said[-1])
    assert len(np.unique(said[0], axis=0)) > 200
    np.testing.assert_array_equal(*said)


@pytest.mark.parametrize("mask_words", [0, refitted_model.MASK_WORDS], ids=["walked", "masked"])
def test_trees_of_all_depths_with_missing_values_and_endless_thresholds(mask_words, monkeypatch):
    monkeypatch.setattr(refitted_model, "MASK_WORDS", mask_words)
    trees = Trees(
        classes=[2, 0],
        n_columns=2,
        start=np.array([0.25, -0.5]),
        roots=np.array([0, 1, 4]),
        outputs=np.array([0, 1, 0]),
        feature=np.array([0, 1, 0, 0, 0, 0, 1, 0, 0]),
        left=np.array([-1, 2, -1, -1, 5, -1, 7, -1, -1]),
        right=np.array([-1, 3, -1, -1, 6, -1, 8, -1, -1]),
        missing=np.array([-1, 3, -1, -1, 5, -1, 8, -1, -1]),
        threshold=np.array([0.0, np.inf, 0.0, 0.0, -1.0, 0.0, 2.0, 0.0, 0.0]),
        value=np.array([1.0, 0.0, -2.0, 4.0, 0.0, 8.0, 0.0, -16.0, 32.0]),
    )
    X = np.array([[x, z] for x in (-2.0, -1.0, 5.0, np.nan) for z in (0.0, 2.0, 3.0, np.nan)])
    scores = trees.decision_function(X)
    assert len({tuple(row) for row in scores.tolist()}) == 5
    proba = np.zeros((len(X), 3))
    RefittedModel(Solution(trees, {}), 1).evaluate(encoded(X), np.ones(len(X), int), proba)
    expected = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(proba, np.column_stack([expected[:, 1], np.zeros(len(X)), expected[:, 0]]), atol=1e-15)


def test_a_model_enters_at_its_event_however_long_it_takes():
    X, y = hidden(400)
    model = cheap(Slow(0.3), trigger=Every(200), delay=90)
    model.learn_many(X[:289], y[:289])
    assert model.refits == []
    model.learn_one(dicts(X[289:290])[0], y[289])
    assert [(refit["event"], refit["outcome"]) for refit in model.refits] == [(200, "votes")]


def test_a_delay_may_be_a_share_of_the_events_since_the_refit_before():
    X, y = events(900)
    model = cheap(trigger=Growing(200, 2.0), delay=0.75)
    model.learn_many(X, y)
    assert [(refit["event"], refit["entered"]) for refit in model.refits] == [(200, 350), (600, 900)]


# The vote -------------------------------------------------------------------------------------------------------------


def hidden(n: int, seed: int = 0) -> tuple[Rows, list[int]]:
    """The class is the parity of a column of many values, hard to learn online."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.integers(0, 1_000, n), rng.normal(size=n)]).astype(float)
    return X, (X[:, 0].astype(int) % 2).tolist()


def test_a_model_that_is_right_takes_over_within_200_events():
    X, y = hidden(2_000)
    model = cheap(Told(), trigger=Every(600), delay=64)
    predicted = model.test_then_train(X, y)
    right = predicted == np.array(y, object)
    assert right[:664].mean() < 0.6
    assert right[864:].mean() > 0.99


def test_a_model_that_is_right_but_unsure_leads_a_learner_that_is_often_right():
    X, y = hidden(1_500)
    X[:, 1] += np.where(y, 1.5, -1.5)
    model = cheap(Told(doubt=0.45), CPMClassifier(), trigger=Every(600), delay=64)
    right = model.test_then_train(X, y) == np.array(y, object)
    assert 0.9 < right[:664].mean() < 0.95
    assert right[-500:].mean() > 0.99


@pytest.mark.parametrize("learner", ["blend", "cpm"])
def test_a_model_that_is_wrong_changes_nothing(learner):
    X, y = hidden(2_000)
    X[:, 1] += np.where(y, 2.0, -2.0)
    alone = MAKERS[learner]()
    expected, proba = alone.test_then_train(X, y, proba=True)
    model = cheap(Told(wrong=True), MAKERS[learner](), trigger=Every(300), delay=64)
    predicted, shares = model.test_then_train(X, y, proba=True)
    assert {refit["outcome"] for refit in model.refits} == {"votes"}
    assert (predicted == expected).mean() > 0.995
    assert (predicted == np.array(y, object)).mean() >= (expected == np.array(y, object)).mean() - 0.002
    assert np.abs(shares - proba)[-500:].max() < 0.02


@pytest.mark.parametrize("max_members", [6, 1])
def test_a_returning_concept_is_predicted_by_its_earlier_model(max_members):
    rng = np.random.default_rng(0)
    X, centres = rng.normal(size=(3_600, 6)), rng.normal(size=(2, 12, 6))
    nearest = [((X[:, None] - centre) ** 2).sum(axis=2).argmin(axis=1) % 3 for centre in centres]
    y = np.where(np.arange(3_600) // 800 % 2 == 0, *nearest).tolist()
    alone = CPMClassifier().test_then_train(X, y)
    model = RefitClassifier(
        CPMClassifier(), KNeighborsClassifier(15), Latest(800), Every(700), delay=100, max_members=max_members
    )
    predicted = model.test_then_train(X, y)
    back = slice(3_200, 3_600)  # the third time of the first concept
    gain = (predicted == y)[back].mean() - (alone == y)[back].mean()
    assert gain > 0.1 if max_members > 1 else gain < 0.08


class Counted(ClassifierMixin, BaseEstimator):
    """Predicts one class, and counts the rows."""

    classes_, n_features_in_, n_asked = np.arange(2), 2, 0

    def predict_proba(self, X: Rows) -> Rows:
        self.n_asked += len(X)
        return np.full((len(X), 2), 0.5)


def test_an_interrupted_prediction_is_not_an_answer(monkeypatch):
    vote, model = ModelVote(1), Counted()
    vote.add(RefittedModel(Solution(model, {}), 1), 2)
    row, learner = np.ones(2), np.array([0.2, 0.8])

    def interrupted(X):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(model, "predict_proba", interrupted, raising=False)
        with pytest.raises(KeyboardInterrupt):
            vote.vote_on_one(row, learner, -1)
    for _ in range(2):
        vote.vote_on_one(row, learner, -1)
        assert model.n_asked == 1  # asked again, and then remembered


@pytest.mark.parametrize("at_once", [False, True])
def test_an_event_waits_for_at_most_one_inactive_model(at_once):
    vote, asked, n = ModelVote(8), [Counted() for _ in range(8)], vote_kernels.SAMPLE
    for number, model in enumerate(asked):
        vote.add(RefittedModel(Solution(model, {}), number), 2)
    arrays = vote.state()
    arrays["members.active"] = np.array([1] + [0] * 8)
    vote.restore(arrays, vote.members, 2)
    rows, learner = np.random.default_rng(0).normal(size=(n, 2)), np.array([0.9, 0.1])
    if at_once:
        encoded = EncodedRows(rows.ravel(), np.arange(2), np.arange(0, 2 * n + 1, 2), True)
        vote.vote(encoded, np.zeros(n, int), np.tile(learner, (n, 1)))
    else:
        for i, row in enumerate(rows, start=1):
            before = sum(model.n_asked for model in asked)
            vote.vote_on_one(row, learner, 0)
            assert sum(model.n_asked for model in asked) <= min(before + 1, i)
    assert [model.n_asked for model in asked] == [1] * 8


def test_the_leader_is_named():
    X, y = hidden(1_500)
    model = cheap(Told(), trigger=Every(600), learner=StreamSVMClassifier(budget=20))
    model.learn_many(X[:500], y[:500])
    assert model.leaders()[0]["member"] != "refit"
    model.learn_many(X[500:], y[500:])
    leaders = model.leaders()
    assert (leaders[0]["member"], leaders[0]["head"]) == ("refit", "1 Told")
    assert leaders[0]["accuracy"] > 0.9
    assert sum(leader["weight"] for leader in leaders) == pytest.approx(1.0)


# Failures -------------------------------------------------------------------------------------------------------------


def test_a_solver_that_fails_leaves_everything_as_it_is(caplog):
    X, y = events(500)
    alone = BSGDClassifier(budget=20).test_then_train(X, y).tolist()
    model = cheap(Failing(), trigger=Every(200))
    with caplog.at_level(logging.WARNING):
        assert model.test_then_train(X, y).tolist() == alone
    first, second = (refit["outcome"] for refit in model.refits)
    assert first == second
    assert first.startswith("failed: ValueError: process ")
    assert first != f"failed: ValueError: process {os.getpid()}"  # it does not hold this interpreter's lock
    (record,) = caplog.records
    assert "after 200 events by Failing failed" in record.message


@pytest.mark.parametrize("solver", ["newton", Told()], ids=["newton", "given"])
def test_a_window_of_one_class_is_skipped_without_a_warning(solver, caplog):
    X, _ = events(500)
    model = cheap(solver, trigger=Every(200))
    with caplog.at_level(logging.WARNING):
        model.learn_many(X, [1] * 500)
    assert model.refits[0]["outcome"].startswith("skipped: ")
    assert model.refit_totals()["outcomes"] == {"skipped": len(model.refits)}
    assert not caplog.records
    assert not model.notices
    assert model.predict_one(dicts(X[:1])[0]) == 1


def test_a_failing_model_does_not_vote(caplog):
    X, y = hidden(600)
    looped, in_batches = (cheap(Moody(), trigger=Every(200), delay=64) for _ in range(2))
    with caplog.at_level(logging.WARNING):
        found = in_parts(looped, X, y, (250, *range(251, 500)))
    assert found[0] == in_parts(in_batches, X, y, (300, 400))[0]
    assert [refit["outcome"] for refit in looped.refits] == ["votes", "votes"]
    assert np.mean(np.array(found[0])[-150:] == y[-150:]) > 0.85
    first = caplog.records[0]
    assert "the model of refit 1, a Moody, failed on some rows and does not vote there" in first.message


@pytest.mark.parametrize(
    ("solver", "message"), [(Renaming(), "`classes_` of Renaming are"), (Short(), "predicts for a row of 2 classes")]
)
def test_a_model_that_cannot_be_understood_does_not_enter(solver, message):
    X, y = hidden(500)
    model = cheap(solver, trigger=Every(200))
    model.learn_many(X, y)
    assert all(message in refit["outcome"] for refit in model.refits)
    assert model.predict_one(dicts(X[:1])[0]) in (0, 1)


@pytest.mark.parametrize("time", ["2026-11-22", [1.0]])
def test_an_event_whose_time_is_none_is_refused_and_nothing_learned(time):
    X, y = hidden(50)
    model, alone = cheap(), cheap()
    for one in (model, alone):
        one.learn_many(X, y)
    with raises((TypeError, ValueError), named="event time"):
        model.learn_one(dicts(X[:1])[0], y[0], time=time)
    with raises((TypeError, ValueError), named="event time"):
        model.learn_many(X[:2], ["new", "newer"], times=[1.0, time])
    with raises(ValueError, named="2 event times, got 1"):
        model.test_then_train(X[:2], ["new", "newer"], times=[1.0])
    assert model.classes_ == alone.classes_
    assert np.array_equal(model.predict_proba_many(X), alone.predict_proba_many(X))


def test_times_of_events_may_be_datetimes():
    pd = pytest.importorskip("pandas")
    X, y = hidden(400)
    seconds = 1_750_000_000.0 + 60.0 * np.arange(400)
    models = [cheap(trigger=EveryTime(7200.0), window=Since(3600.0)) for _ in range(3)]
    for model, times in zip(models, (seconds, pd.to_datetime(seconds, unit="s"), pd.Series(seconds)), strict=True):
        model.learn_many(X, y, times=times)
    assert len(models[0].refits) > 1
    assert all([r["event"] for r in m.refits] == [r["event"] for r in models[0].refits] for m in models)
    with raises(ValueError, named="milliseconds"):
        models[0].learn_many(X, y, times=seconds * 1000)
    with raises(ValueError, named="milliseconds"):
        models[0].learn_one(dicts(X[:1])[0], y[0], time=1_750_000_000_000)


def test_a_solver_that_would_end_the_program_does_not():
    class Ending(Told):  # cannot be sent to a process: its thread gets the error
        def fit(self, X: Any, y: Any) -> Told:
            raise SystemExit(3)

    model = cheap(Ending(), trigger=Every(200))
    model.learn_many(*events(300))
    assert "the solver tried to exit with code 3" in model.refits[0]["outcome"]


def test_a_solver_that_draws_is_seeded():
    X, y = events(500)
    forest = make_pipeline(StandardScaler(), RandomForestClassifier(5))
    one, other = (in_parts(cheap(forest, trigger=Every(200)), X, y, ())[1] for _ in range(2))
    assert np.array_equal(one, other)
    seven = RandomForestClassifier(random_state=7)
    assert seeded(seven, 1).random_state == 7


@pytest.mark.parametrize("name", ["cuts", "trees"])
def test_a_window_too_wide_for_a_matrix_is_refused(name):
    n = 1_000
    rows = EncodedRows(np.ones(n), np.arange(n) * 500, np.arange(n + 1), False)
    window = WindowRows(rows, np.arange(n) % 2, np.ones(n), np.full(n, np.nan), np.arange(n))
    with raises(ValueError, named="rows of 500000 columns"):
        solver_of(name).solve(Task(window, 500_000))


def test_an_estimator_predicts_wide_rows_in_the_form_of_its_fit(caplog):
    X, y = hidden(400)
    rows = [{0: row[0], 1 + i % 300: 1.0} for i, row in enumerate(X.tolist())]
    model = cheap(Sparse(), trigger=Every(300), delay=64)
    with caplog.at_level(logging.WARNING):
        model.learn_many(rows[:370], y[:370])
        assert model.refits[0]["outcome"] == "votes"
        model.predict_one(rows[371])
        model.predict_many(rows[370:])
    assert caplog.records == []


def test_a_column_without_values_as_yet_is_none():
    """A column exists from the batch of its first value on, but in no earlier window."""
    X, y = events(500)
    X[:350, 3] = np.nan
    whole, loop = (cheap("newton", CPMClassifier(), **TWICE) for _ in range(2))
    found = whole.test_then_train(X, y, proba=True)[1]
    assert [refit["outcome"] for refit in whole.refits] == ["votes", "votes"]
    np.testing.assert_array_equal(in_parts(loop, X, y, (200, *range(201, 500)))[1], found)


def test_a_stream_that_stands_still_for_a_solver_says_so_once(monkeypatch, caplog):
    monkeypatch.setattr(jobs, "PATIENCE_S", 0.0)
    model = cheap(Slow(0.2), trigger=Every(200))
    model.learn_many(*events(300))
    waits = [record.message for record in caplog.records if "the stream waits for the refit" in record.message]
    assert len(waits) == len(model.refits) == 1


def test_a_refit_that_is_interrupted_as_it_begins_is_noted(monkeypatch):
    X, y = events(500)
    model, rows = cheap(trigger=Every(200)), list(zip(dicts(X), y, strict=True))

    def learn_the_rest():
        for x, label in rows[model.n_events_learned :]:
            model.learn_one(x, label)

    def interrupted(memory):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(WindowMemory, "held", interrupted)
        with pytest.raises(KeyboardInterrupt):
            learn_the_rest()
    learn_the_rest()
    first, second = model.refits[:2]
    assert first["outcome"] == "failed: RuntimeError: it was interrupted at its start, for example by Ctrl-C"
    assert second["outcome"] == "votes"


@pytest.mark.parametrize(
    ("settings", "parameter"),
    [
        ({"learner": LogisticRegression()}, "learner"),
        ({"solver": "svm"}, "solver"),
        ({"solver": 7}, "solver"),
        ({"solver": LogisticRegression}, "solver"),
        ({"window": 1_000}, "window"),
        ({"window": Latest(1)}, "window"),
        ({"trigger": 1_000}, "trigger"),
        ({"max_members": 0}, "max_members"),
        ({"delay": 10}, "delay"),
        ({"delay": 1.0}, "delay"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, parameter):
    with raises(ParameterError, parameter=parameter):
        RefitClassifier(**({"learner": CPMClassifier()} | settings))


# The end of the process -----------------------------------------------------------------------------------------------


def test_a_slow_solver_is_abandoned_and_delays_nothing():
    wait_for_earlier_jobs()
    X, y = events(300)
    model = cheap(Slow(3_000.0), trigger=Every(200), timeout=0.01)
    model.learn_many(X[:210], y[:210])
    job = started_job(model)
    model.learn_many(X[210:], y[210:])
    assert model.refits[0]["outcome"] == "failed: TimeoutError: it took longer than 0.01 s"
    job.wait()
    assert not any(process.is_alive for process in solver_process._processes)


def test_refits_of_a_discarded_model_delay_nothing(monkeypatch):
    monkeypatch.setattr(jobs.JobHandle, "__del__", GIVE_UP)
    solver_process.end_processes()  # one may still solve what an earlier test had begun
    X, y = events(300)
    model = cheap(Slow(3_000.0), trigger=Every(200), delay=1_000)
    model.learn_many(X, y)
    job = started_job(model)  # the job of the copy must not be first
    other = copy.copy(model)
    del model
    gc.collect()
    job.wait()
    assert isinstance(job._error, RuntimeError)
    assert not other._refits._job.job._is_cancelled
