"""Solvers of tests, in a module that the process of solvers imports quickly."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

Rows = NDArray[np.float64]


class Told(ClassifierMixin, BaseEstimator):
    """Predicts a function of the first column, never the right class if `wrong`.

    It does not check columns. The other class has the probability `doubt`.
    """

    def __init__(self, wrong: bool = False, doubt: float = 0.02) -> None:
        self.wrong, self.doubt = wrong, doubt

    def fit(self, X: Any, y: Any) -> Told:
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: Any) -> Rows:
        right = np.abs(X[:, 0]).astype(int) % 2 == 1
        sure = 1.0 - self.doubt
        return np.where((right ^ self.wrong)[:, None], [self.doubt, sure], [sure, self.doubt])


class Slow(Told):
    """A slow solver."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.seconds = seconds

    def fit(self, X: Any, y: Any) -> Told:
        time.sleep(self.seconds)
        return super().fit(X, y)


class Failing(Told):
    """Fails, and tells its process."""

    def fit(self, X: Any, y: Any) -> Told:
        raise ValueError(f"process {os.getpid()}")


class Moody(Told):
    """Fails for some rows."""

    def predict_proba(self, X: Any) -> Rows:
        if (X[:, 1] > 1.0).any():
            raise RuntimeError("not about these")
        return super().predict_proba(X)


class Renaming(Told):
    """Returns other classes than it was fitted to."""

    def fit(self, X: Any, y: Any) -> Told:
        super().fit(X, y)
        self.classes_ = np.array([f"class {c}" for c in self.classes_])
        return self


class Short(Told):
    """Returns probabilities without a column per class."""

    def predict_proba(self, X: Any) -> Rows:
        return np.ones(len(X))


class Sparse(Told):
    """Accepts sparse matrices only."""

    def fit(self, X: Any, y: Any) -> Told:
        assert scipy.sparse.issparse(X)
        return super().fit(X, y)

    def predict_proba(self, X: Any) -> Rows:
        assert scipy.sparse.issparse(X)
        return super().predict_proba(X[:, [0]].toarray())
