"""Stages that threads take, as they may come to take them."""

from __future__ import annotations

import os
from itertools import pairwise

import numpy as np
import pytest

from streamsvm import StreamSVMClassifier
from streamsvm.kernels import pipeline as kernels
from streamsvm.online import threads
from tests.learners import assert_same_knowledge, ring


class AtRandom:
    """Takes stages as any number of threads could, one after another in an order of chance."""

    def __init__(self, seed):
        self._rng, self.most_ahead = np.random.default_rng(seed), 0

    def __call__(self, pipeline, thread):
        if thread > 0:
            return
        pipeline.n_blocks[0] = kernels.MANY
        favoured = self._rng.permutation(len(pipeline.turns))
        while (turns := pipeline.turns[:, 0] >> 1)[-1] < pipeline.n_blocks[0]:
            stage = favoured[min(self._rng.geometric(0.5), len(favoured)) - 1]
            kernels.take_stage(pipeline, stage)
            self.most_ahead = max(self.most_ahead, int(turns[:-2].max() - turns[-1]))


@pytest.mark.parametrize("seed", range(2))
def test_whoever_takes_a_stage_and_when_comes_to_the_same(monkeypatch, seed):
    monkeypatch.setattr(threads.kernels, "run_stages", at_random := AtRandom(seed))
    plain, taken = StreamSVMClassifier(budget=20), StreamSVMClassifier(budget=20, threads=2)
    X, y = ring(1_500)
    labels, slept = np.concatenate([y, X[:, 0] > X[:, 1]]).tolist(), set()
    for start, stop in pairwise((0, 700, 1_500, 2_200, 3_000)):
        rows = np.concatenate([X, X])[start:stop]
        assert list(plain.test_then_train(rows, labels[start:stop])) == list(
            taken.test_then_train(rows, labels[start:stop])
        )
        slept |= {row["member"] for row in taken.leaders() if row["dormant"]}
    taken.threads = 1
    assert_same_knowledge(plain, taken)
    assert slept  # a member waits for the votes where they may wake it or let it rest
    assert at_random.most_ahead == 2  # others do not


def spoiled(n_threads):
    """A model that has met a row which should never have come so far, behind others."""
    model, (X, y) = StreamSVMClassifier(budget=20, threads=n_threads), ring(600)
    rows, codes, weights = model._prepare(X, y.tolist(), None, False)
    rows.values[2 * 450] = np.inf
    model._run(rows, codes, weights)
    model.threads = 1
    return model


def test_rows_end_before_one_of_no_use():
    one, three = spoiled(1), spoiled(3)
    assert one.n_events_learned == 450
    assert_same_knowledge(one, three)


def test_nothing_is_done_for_a_thread_that_is_interrupted_before_it_begins(monkeypatch):
    X, y = ring(1_000)
    plain, model = StreamSVMClassifier(budget=20), StreamSVMClassifier(budget=20, threads=2)
    for each in (plain, model):
        each.learn_many(X[:500], y[:500])
    run_stages = kernels.run_stages

    def interrupted(pipeline, thread):
        if thread == 0:
            raise KeyboardInterrupt
        run_stages(pipeline, thread)

    monkeypatch.setattr(threads.kernels, "run_stages", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.learn_many(X[500:], y[500:])
    monkeypatch.undo()
    threads._executor(1).submit(int).result(timeout=60.0)  # whoever waited has left
    for each in (plain, model):
        each.learn_many(X[500:], y[500:])
    model.threads = 1
    assert_same_knowledge(plain, model)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_process_goes_on():
    X, y = ring(1_000)
    plain, model = StreamSVMClassifier(budget=20), StreamSVMClassifier(budget=20, threads=2)
    for each in (plain, model):
        each.learn_many(X[:500], y[:500])
    expected, child = plain.test_then_train(X[500:], y[500:]), os.fork()
    if child == 0:
        os._exit(int(list(model.test_then_train(X[500:], y[500:])) != list(expected)))
    assert os.waitpid(child, 0)[1] == 0
