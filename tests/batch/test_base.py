"""What all batch solvers share."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm import IndexedBCD, SampledCuts, SmoothedNewton

X = np.random.default_rng(0).normal(size=(60, 3))


@pytest.mark.parametrize("make", [SmoothedNewton, IndexedBCD, SampledCuts])
def test_a_class_without_weight_is_as_if_it_were_not_there(make):
    y = (X[:, 0] > 0.0).astype(int)
    message = "needs rows of at least two classes with positive weight, got 1 class"
    with pytest.raises(ValueError, match=message):
        make(class_weight={0: 0.0}).fit(X, y)
    with pytest.raises(ValueError, match=message):
        make().fit(X, y, sample_weight=y)
    y = X.argmax(axis=1)
    for model in (make(class_weight={0: 0.0}).fit(X, y), make().fit(X, y, sample_weight=y > 0)):
        assert model.classes_.tolist() == [0, 1, 2]
        assert set(model.predict(X)) == {1, 2}


def test_rows_drawn_of_one_class_with_weight_are_refused():
    with pytest.raises(ValueError, match="at least two classes with positive weight, got 1 class"):
        SampledCuts(class_weight={0: 0.0}).fit_drawn([None], [0, 1])
    with pytest.raises(ValueError, match="`class_weight` must be finite and not negative"):
        SampledCuts(class_weight={0: -1.0}).fit_drawn([None], [0, 1])
