"""Common properties of all batch solvers, among them the scikit-learn API."""

from __future__ import annotations

import _thread
import contextlib
import threading
import unittest
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_info, threadpool_limits

from streamsvm.batch import IndexedBCD, SampledCuts, SmoothedNewton
from streamsvm.batch.threads import OneThread
from streamsvm.parameters import ParameterError
from tests.choices import each_choice
from tests.errors import raises
from tests.learners import with_constants

X = np.random.default_rng(0).normal(size=(60, 3))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "estimator",
    [
        SmoothedNewton(l2=1e-2, l1=1e-3, tol=0.1),
        IndexedBCD(tol=0.01),
        SampledCuts(max_iter=20, tol=0.1, sample_size=20),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_it_keeps_the_protocol_of_scikit_learn(estimator):
    from sklearn.utils.estimator_checks import estimator_checks_generator  # imports all of scikit-learn

    left_out = ["estimator_sparse_matrix"]  # like sparse arrays; the tests of the solvers use matrices
    if isinstance(estimator, SampledCuts):  # C=None and gamma='scale' depend on the number of rows, samples on indices
        left_out.append("sample_weight_equivalence")
    for instance, check in estimator_checks_generator(estimator):
        if not any(name in check.func.__name__ for name in left_out):
            with contextlib.suppress(unittest.SkipTest):  # of array libraries
                check(instance)


@pytest.mark.parametrize("make", [SmoothedNewton, IndexedBCD, SampledCuts])
def test_probabilities_come_from_a_calibration_on_held_out_rows(make):
    y = (X[:, 0] > 0.0).astype(int)
    assert not hasattr(make(), "predict_proba")
    with raises(AttributeError, named="CalibratedClassifierCV"):
        make().predict_proba(X)
    proba = CalibratedClassifierCV(make(), cv=3).fit(X, y).predict_proba(X)
    assert ((proba[:, 1] > 0.5) == y).mean() > 0.9


@pytest.mark.parametrize("make", [SmoothedNewton, IndexedBCD, SampledCuts])
def test_a_class_without_weight_has_no_effect(make):
    y = (X[:, 0] > 0.0).astype(int)
    with raises(ParameterError, parameter="y"):
        make(class_weight={0: 0.0}).fit(X, y)
    with raises(ParameterError, parameter="y"):
        make().fit(X, y, sample_weight=y)
    y = X.argmax(axis=1)
    for model in (make(class_weight={0: 0.0}).fit(X, y), make().fit(X, y, sample_weight=y > 0)):
        assert model.classes_.tolist() == [0, 1, 2]
        assert set(model.predict(X)) == {1, 2}


SOLVERS = [
    SmoothedNewton,
    lambda **more: SmoothedNewton(0.0, 1e-3, **more),
    IndexedBCD,
    lambda **more: IndexedBCD(loss="squared_hinge", **more),
    SampledCuts,
    lambda **more: SampledCuts(60.0, sample_size=20, max_iter=20, **more),
]
SIGNS = (X[:, 0] > 0.0).astype(int)


@pytest.mark.filterwarnings("error:overflow", "error:invalid value", "error:divide by zero")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("make", SOLVERS)
def test_values_of_any_magnitude_are_fitted_or_refused_with_a_remedy(make):
    for exponent in (-320, -49, 20, 49, 155, 307):
        for columns in (slice(None), slice(1, 2)):
            rows = X.copy()
            rows[:, columns] *= 10.0**exponent
            if -50 < exponent < 50 or (exponent < 0 and columns != slice(None)):
                model = make().fit(rows, SIGNS)
                assert np.isfinite(model.decision_function(rows)).all()
                assert np.isfinite(model.objective_)
                assert model.certificate_ >= 0.0
            else:
                with raises(ParameterError, parameter="X"):
                    make().fit(rows, SIGNS)


@pytest.mark.parametrize("make", [*SOLVERS[:2], *SOLVERS[5:]])
def test_the_scale_of_weights_has_no_effect_on_a_mean(make):
    plain = make().fit(X, SIGNS, sample_weight=np.ones(60)).decision_function(X)
    for exponent in (-320, -300, 300, 307):
        same = make().fit(X, SIGNS, sample_weight=np.full(60, 10.0**exponent)).decision_function(X)
        np.testing.assert_allclose(same, plain, rtol=1e-6)


@pytest.mark.parametrize("exponent", [-300, 100])
def test_settings_of_such_magnitudes_are_refused(exponent):
    value = 10.0**exponent
    for model, parameter in [
        (SmoothedNewton(value), "l2"),
        (SmoothedNewton(0.0, value), "l1"),
        (IndexedBCD(value), "C"),
        (SampledCuts(value), "C"),
        (SampledCuts(gamma=value), "gamma"),
        (SampledCuts(cost=[[0.0, value], [value, 0.0]]), "cost"),
        *((make(class_weight={0: value, 1: value}), "class_weight") for make in SOLVERS[:3]),
    ]:
        with raises(ParameterError, parameter=parameter):
            model.fit(X, SIGNS)
    with raises(ParameterError, parameter="C"):
        IndexedBCD().fit(X, SIGNS, sample_weight=np.full(60, value))


ITERATING = [SmoothedNewton, with_constants(IndexedBCD, n_pilot=20), partial(SampledCuts, sample_size=10)]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("make", ITERATING)
def test_a_callback_hears_of_each_iteration_and_may_stop(make):
    steps = []
    whole = make(tol=1e-6, max_iter=20, callback=lambda _, step: steps.append(step)).fit(X, SIGNS)
    assert steps == whole.history_
    assert whole.n_iter_ == len(steps) > 1
    stopped = make(tol=1e-6, callback=lambda model, step: isinstance(model, type(whole))).fit(X, SIGNS)
    assert stopped.n_iter_ == 1


@pytest.mark.parametrize("make", ITERATING[:2])
def test_too_few_iterations_are_reported(make):
    with pytest.warns(ConvergenceWarning) as caught:
        model = make(tol=1e-9, max_iter=2).fit(X, SIGNS)
    assert len(caught) == 1
    assert model.certificate_ > 0.0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "make",
    [
        partial(SmoothedNewton, 1e-4),
        partial(with_constants(IndexedBCD, n_pilot=50)),
        partial(SampledCuts, 1e3, sample_size=50, max_iter=20),
    ],
)
def test_equal_seeds_give_equal_bits(make):
    rows = np.random.default_rng(1).normal(size=(25_000 if make.func is SmoothedNewton else 500, 3))
    fits = [make(random_state=s).fit(rows, rows[:, 0] > 0.1).decision_function(rows) for s in (3, 3, 4)]
    assert fits[0].tobytes() == fits[1].tobytes()
    assert fits[0].tobytes() != fits[2].tobytes()


def test_parameters_that_cannot_be_are_refused_by_name():
    for model, parameter in [
        (SmoothedNewton(l2=-1.0), "l2"),
        (SmoothedNewton(l2=0.0), "l2"),
        (SmoothedNewton(l1=np.nan), "l1"),
        (IndexedBCD(C=0.0), "C"),
        (IndexedBCD(s=-1.0), "s"),
        (IndexedBCD(loss="ramp"), "loss"),
        (IndexedBCD(tol=1.0), "tol"),
        (SampledCuts(gamma=0.0), "gamma"),
        (SampledCuts(sample_size=0), "sample_size"),
        (SampledCuts(max_iter=1.5), "max_iter"),
        (SampledCuts(cost=[[0, 1]]), "cost"),
        (SampledCuts(cost=[[0, -1], [1, 0]]), "cost"),
    ]:
        with raises(ParameterError, parameter=parameter):
            model.fit(X, SIGNS)
    with raises(ParameterError, parameter="budget"):
        SampledCuts(30.0).fit(X, SIGNS).reduced(0)


# Near the optimum, so that results can be compared.
EXACT = [
    partial(SmoothedNewton, 0.01, tol=2e-8),
    partial(SmoothedNewton, 0.01, 0.005, tol=2e-8),
    partial(IndexedBCD, s=np.inf, tol=1e-6, max_iter=1000),
    partial(SampledCuts, 40.0, gamma=0.2, tol=1e-7, max_iter=2000),
]
NOISY = (X[:, 0] + np.random.default_rng(1).normal(size=60) > 0.0).astype(int)


@pytest.mark.parametrize("make", EXACT)
def test_weights_count_as_repeated_rows_and_classes_can_weigh(make):
    times = np.random.default_rng(3).integers(0, 4, 60)
    weighted = make().fit(X, NOISY, sample_weight=times)
    repeated = make().fit(np.repeat(X, times, axis=0), np.repeat(NOISY, times))
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-6)
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-5)
    balanced = dict(enumerate(30.0 / np.bincount(NOISY)))
    for class_weight, factors in (({0: 0.5, 1: 3.0}, {0: 0.5, 1: 3.0}), ("balanced", balanced)):
        weights = np.where(NOISY, factors[1], factors[0])
        by_class = make(class_weight=class_weight).fit(X, NOISY).decision_function(X)
        by_row = weighing(make, weights.mean())().fit(X, NOISY, sample_weight=weights).decision_function(X)
        np.testing.assert_allclose(by_class, by_row, atol=1e-5)


def weighing(make, mean):
    """Adapt penalties to weights of this mean, for losses that are sums.

    In other objectives, the weights of rows are relative.
    """
    if make.func is IndexedBCD:
        return make
    penalties = [value / mean if make.func is SmoothedNewton else value * mean for value in make.args]
    return partial(make.func, *penalties, **make.keywords)


RNG = np.random.default_rng(7)
DEGENERATE = {
    "two rows": (np.array([[1.0, 2.0], [3.0, -1.0]]), [0, 1]),
    "the same rows of both classes": (np.ones((6, 3)), [0, 1] * 3),
    "duplicated columns": (np.repeat(RNG.normal(size=(40, 3)), 3, axis=1), RNG.integers(0, 2, 40)),
    "all zero": (np.zeros((20, 3)), [0] * 15 + [1] * 5),
    "wide": (RNG.normal(size=(15, 400)), [0, 1, 1] * 5),
    "separable": (np.vstack([RNG.normal(size=(20, 2)) + 9, RNG.normal(size=(20, 2)) - 9]), [0] * 20 + [1] * 20),
    "one row of a class": (RNG.normal(size=(60, 4)), [1] + [0] * 59),
    "large values": (1e4 * RNG.normal(size=(50, 3)), RNG.integers(0, 2, 50)),
    "small values": (1e-4 * RNG.normal(size=(50, 3)), RNG.integers(0, 2, 50)),
    "far from zero": (1e9 + np.arange(4.0)[:, None], [0, 0, 1, 1]),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each_choice(
    ("data", DEGENERATE.values()),
    (
        "make",
        [
            *(partial(SmoothedNewton, l2, l1) for l2, l1 in ((1e-2, 0.0), (1e-8, 0.0), (0.0, 1e-3))),
            partial(SmoothedNewton, 1e-3, 1e-3),
            partial(SmoothedNewton, 1e-2, fit_intercept=False),
            partial(IndexedBCD),
            partial(IndexedBCD, s=np.inf, fit_intercept=False),
            partial(SampledCuts, 10.0),
            partial(SampledCuts, 10.0, sample_size=2),
            partial(SampledCuts, 10.0, sample_size=1, max_iter=60),
        ],
    ),
)
def test_degenerate_data(data, make):
    rows, y = data
    for view in (rows, scipy.sparse.csr_matrix(rows)):
        model = make().fit(view, y)
        assert np.isfinite(model.decision_function(view)).all()
        assert np.isfinite(model.objective_)
        assert set(model.predict(view)) <= {0, 1}
        if make.func is SmoothedNewton:
            assert model.certificate_ <= 1e-3 * model.objective_


@pytest.mark.parametrize(
    "make", [partial(SmoothedNewton, 0.01), IndexedBCD, partial(SampledCuts, 60.0, sample_size=40)]
)
def test_sparse_rows_are_as_dense_ones(make):
    rows = np.where(np.abs(X) < 0.5, 0.0, X)
    fits = [make().fit(view, NOISY).decision_function(rows) for view in (rows, scipy.sparse.csr_matrix(rows))]
    np.testing.assert_allclose(*fits, rtol=1e-5, atol=1e-5)


# Threads --------------------------------------------------------------------------------------------------------------


def n_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def elsewhere(call: Any) -> None:
    """Call a function in a thread that `threading` did not start, like a refit's."""
    done = threading.Event()
    _thread.start_new_thread(lambda: (call(), done.set()), ())
    assert done.wait(20)


@pytest.mark.parametrize("solver", [SmoothedNewton, IndexedBCD, SampledCuts])
def test_fits_use_one_blas_thread_and_restore_the_limit(solver: Any) -> None:
    inside: list[int] = []
    with threadpool_limits(2, "blas"):
        before = n_threads()
        solver(callback=lambda *_: inside.extend(n_threads())).fit(X, SIGNS)
        assert n_threads() == before
    assert set(inside) == {1}


def test_a_failed_fit_restores_the_threads() -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError

    with threadpool_limits(2, "blas"):
        before = n_threads()
        with pytest.raises(RuntimeError):
            SmoothedNewton(callback=fail).fit(X, SIGNS)
        assert n_threads() == before


@pytest.mark.parametrize("in_first", [elsewhere, lambda call: call()], ids=["in another thread", "here"])
@pytest.mark.parametrize("in_second", [elsewhere, lambda call: call()], ids=["in another thread", "here"])
def test_solvers_side_by_side_leave_the_threads_of_others_as_they_were(in_first: Any, in_second: Any) -> None:
    with threadpool_limits(2, "blas"):
        before = n_threads()
        first, second = OneThread(), OneThread()
        in_first(first.__enter__)
        in_second(second.__enter__)
        in_first(first.__exit__)
        assert set(n_threads()) <= {1}
        in_second(second.__exit__)
        assert n_threads() == before
