"""Estimators of scikit-learn: fitting, probabilities, and conversion to plain arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.features.rows import Floats
from streamsvm.models import KernelExpansion, LinearModel, Trees
from streamsvm.refit.tasks import Task


def fit_alone(estimator: Any, X: Any, y: Any, weights: Floats) -> None:
    """Fit on one thread, because the stream needs the others; pass weights only if they differ."""
    from threadpoolctl import threadpool_limits

    from streamsvm.batch.threads import OneThread

    with OneThread(), threadpool_limits(1, "openmp"):  # the limit applies to this thread
        if (weights == weights[0]).all():
            estimator.fit(X, y)
        else:
            estimator.fit(X, y, sample_weight=weights)


def seeded(estimator: Any, seed: int) -> Any:
    """Set the seeds of an estimator that are None."""
    params = estimator.get_params(deep=True)
    open_seeds = [n for n in params if n.rpartition("__")[2] == "random_state" and params[n] is None]
    return estimator.set_params(**dict.fromkeys(open_seeds, seed)) if open_seeds else estimator


def check_estimator(model: Any, X: Any, task: Task) -> None:
    """Refuse an estimator with other classes or shapes."""
    classes, known = np.asarray(model.classes_), np.unique(task.window.codes)
    if classes.dtype.kind not in "iu" or len(set(classes.tolist())) < len(classes) or not np.isin(classes, known).all():
        raise ValueError(f"`classes_` of {type(model).__name__} are {classes}, but it was fitted to {known}")
    if (shape := np.shape(proba_of(model, X))) != (1, len(classes)):
        raise ValueError(f"{type(model).__name__} predicts for a row of {len(classes)} classes by {shape}")


def proba_of(model: Any, X: Any) -> Floats:
    """Return probabilities of an estimator's classes for rows, or the softmax of its scores."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X), np.float64)
    scores = np.asarray(model.decision_function(X), np.float64)
    scores = np.column_stack([-scores, scores]) if scores.ndim == 1 else scores
    terms = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(terms / terms.sum(axis=1, keepdims=True))


def allows_nan(estimator: Any) -> bool:
    """Return whether an estimator accepts NaN for missing values."""
    from sklearn.utils import get_tags

    try:
        return bool(get_tags(estimator).input_tags.allow_nan)
    except (AttributeError, TypeError):  # not an estimator of scikit-learn itself
        return False


def arrays_of(estimator: Any) -> Any:
    """Return a fitted estimator as plain arrays if its kind is supported, else unchanged."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    if isinstance(estimator, HistGradientBoostingClassifier):
        return trees_of(estimator)
    if isinstance(model := getattr(estimator, "model_", None), LinearModel | KernelExpansion):
        return model
    return estimator


def trees_of(estimator: Any) -> Trees:
    """Return the trees of a HistGradientBoostingClassifier; with two classes all belong to the second."""
    if estimator.is_categorical_ is not None and estimator.is_categorical_.any():
        raise ValueError("trees with categorical features are not supported: remove `categorical_features`")
    iterations = estimator._predictors
    trees = [(tree.nodes, k) for trees in iterations for k, tree in enumerate(trees)]
    binary = len(estimator.classes_) == 2
    baseline = np.ravel(estimator._baseline_prediction).astype(float)
    roots = np.cumsum([0, *(len(nodes) for nodes, _ in trees[:-1])]).astype(np.int64)
    nodes = np.concatenate([nodes for nodes, _ in trees])
    first = np.repeat(roots, [len(nodes) for nodes, _ in trees])
    is_leaf = nodes["is_leaf"].astype(bool)
    left = np.where(is_leaf, -1, nodes["left"].astype(np.int64) + first)
    right = np.where(is_leaf, -1, nodes["right"].astype(np.int64) + first)
    return Trees(
        classes=estimator.classes_.tolist(),
        n_columns=int(estimator.n_features_in_),
        start=np.concatenate([[0.0], baseline]) if binary else baseline,
        roots=roots,
        outputs=np.array([1 if binary else k for _, k in trees], np.int64),
        feature=np.where(is_leaf, 0, nodes["feature_idx"]).astype(np.int64),
        left=left,
        right=right,
        missing=np.where(nodes["missing_go_to_left"].astype(bool), left, right),
        threshold=np.where(is_leaf, 0.0, nodes["num_threshold"]),
        value=np.where(is_leaf, nodes["value"], 0.0),
    )
