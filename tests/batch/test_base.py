"""Common properties of all batch solvers."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from streamsvm import IndexedBCD, SampledCuts, SmoothedNewton
from streamsvm.parameters import ParameterError
from tests.errors import raises

X = np.random.default_rng(0).normal(size=(60, 3))


@pytest.mark.parametrize("make", [SmoothedNewton, IndexedBCD, SampledCuts])
def test_a_class_without_weight_is_as_if_it_were_not_there(make):
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
def test_values_of_any_magnitude_are_fitted_or_it_is_told_what_to_do(make):
    for exponent in (-320, -100, -49, -20, 20, 49, 100, 155, 307):
        for columns in (slice(None), slice(1, 2)):
            rows = X.copy()
            rows[:, columns] *= 10.0**exponent
            if -50 < exponent < 50 or (exponent < 0 and columns != slice(None)):
                model = make().fit(rows, SIGNS)
                assert np.isfinite(model.decision_function(rows)).all()
                assert np.isfinite(model.objective_)
                assert model.certificate_ >= 0.0
            elif "SampledCuts" in repr(make()):
                with np.errstate(all="ignore"), pytest.warns(ConvergenceWarning):
                    make().fit(rows, SIGNS)
            else:
                with raises(ParameterError, parameter="X"):
                    make().fit(rows, SIGNS)


@pytest.mark.parametrize("make", [*SOLVERS[:2], *SOLVERS[5:]])
def test_what_all_rows_weigh_is_of_no_consequence_to_a_mean(make):
    plain = make().fit(X, SIGNS, sample_weight=np.ones(60)).decision_function(X)
    for exponent in (-320, -300, 300, 307):
        same = make().fit(X, SIGNS, sample_weight=np.full(60, 10.0**exponent)).decision_function(X)
        np.testing.assert_allclose(same, plain, rtol=1e-6)


@pytest.mark.parametrize("exponent", [-300, -100, 100, 300])
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
