"""Nearest neighbours as a head, compared with numpy, and where they gain."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from connectors.synthetic import find
from streamsvm import StreamSVMClassifier
from streamsvm.core.jit import LANES
from streamsvm.ensemble.neighbours import AGEING, LEAST_DISTANCE, MEASURED, N_NEAREST, PRIOR, WINDOW
from streamsvm.ensemble.trees import STORED


@pytest.mark.parametrize(("n_classes", "n"), [(2, 700), (5, 700), (3, STORED + 400)])
def test_scores_equal_those_of_plain_numpy(n_classes, n):
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=n)
    X = rng.normal(size=(n, 4)) + 0.5 * rng.normal(size=(n_classes, 4))[y]
    model = StreamSVMClassifier(members=("trees",), label_autocorrelation=False)
    rows, labels = np.zeros((n, 4), np.float32), np.zeros(n, int)
    for i, (x, label) in enumerate(zip(X, y, strict=True)):
        model.learn_one(dict(enumerate(x)), label)
        state, known = model._state.parts["1"], len(set(labels[:i].tolist()))
        rows[i], labels[i] = state.row[:4], model.classes_.index(label)
        first = max(i - WINDOW, 0) // LANES * LANES
        ages = AGEING * (MEASURED - np.arange(i - first))
        distances = ((rows[first:i] - rows[i]) ** 2).sum(axis=1) + ages
        nearest = np.argsort(distances)[:N_NEAREST]
        if not i or (i < STORED and i % 7):
            continue
        weights = np.bincount(labels[first + nearest], 1.0 / (np.sqrt(distances[nearest]) + LEAST_DISTANCE), known)
        scores = np.log((weights / weights.sum() * len(nearest) + PRIOR / known) / (len(nearest) + PRIOR))
        start = state.scores.size // 2
        np.testing.assert_allclose(state.scores[start : start + known], scores, rtol=1e-3, atol=1e-4)


def test_new_columns_do_not_count_in_the_prediction_of_their_first_event():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=60).tolist()
    names = [f"t{int(30 * x * x)}" for x in rng.random(60)]
    events = [{"a": x + c, "site": name} for x, c, name in zip(rng.normal(size=60), y, names, strict=True)]
    single, batch = (StreamSVMClassifier(members=("trees",), label_autocorrelation=False) for _ in range(2))
    for x, label in zip(events, y, strict=True):
        before = single.predict_proba_one(x)
        single.learn_one(x, label)
        proba = batch.test_then_train([x], [label], proba=True)[1]
        np.testing.assert_array_equal(proba[0, : len(before)], list(before.values()))


def test_head_leads_where_groups_of_events_move():
    events = list(itertools.islice(find("rbf-swarm").draw(0), 2_000))
    model = StreamSVMClassifier()
    model.test_then_train(pd.DataFrame([event.x for event in events]), [event.y for event in events])
    heads = model.leaders()
    assert heads[0]["head"] == "neighbours"
    assert heads[0]["accuracy"] > heads[1]["accuracy"] + 0.03
