"""Streams and checks that several tests of learners use."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.online.base import OnlineClassifier


def blobs(n: int, n_classes: int, seed: int = 0, d: int = 5) -> tuple[np.ndarray[Any, Any], list[int]]:
    """Classes of normal distributions that overlap."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    return 2.0 * rng.normal(size=(n_classes, d))[y] + rng.normal(size=(n, d)), y.tolist()


def accuracy(model: OnlineClassifier, X: np.ndarray[Any, Any], y: Any) -> float:
    """Return the accuracy of predictions before learning."""
    return float(np.mean([p == t for p, t in zip(model.test_then_train(X, y), y, strict=True)]))
