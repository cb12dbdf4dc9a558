"""A part of the trials of `python -m tests.fuzz`."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest

from streamsvm import BSGDClassifier, CPMClassifier, DecidingClassifier, StreamSVMClassifier
from streamsvm.keyed.key_state import KeyStateError, seal, unseal
from streamsvm.keyed.packing import Packer
from streamsvm.models import ArchiveError
from streamsvm.models.archive import CORRUPT_ERRORS
from streamsvm.models.codec import part_of
from streamsvm.run.history import History
from streamsvm.run.metrics import Metrics
from tests import fuzz
from tests.errors import raises
from tests.learners import ring

pytestmark = pytest.mark.usefixtures("unsynced")


@pytest.mark.parametrize(
    ("kind", "n"), [("archive", 60), ("key", 100), ("checkpoint", 8), ("decisions", 8), ("late", 8)]
)
def test_crafted_states_are_refused_or_work(kind, n, tmp_path):
    assert sum(fuzz.trial(kind, number, tmp_path) for number in range(n)) > n // 3


@pytest.mark.parametrize("make", [lambda: CPMClassifier(scaling="rank"), lambda: StreamSVMClassifier(budget=5)])
def test_ranks_of_a_key_that_are_not_those_of_its_values_are_refused(make):
    packer = Packer(make())
    held = packer.begin()
    X, y = ring(60)
    held.learner.learn_many(X, y)
    assert packer.unpack(unseal(seal([*packer.pack(held), b""]))[:-1]).learner.n_events_learned == 60
    state = held.learner.buffer
    ranks = (state.ranks if "ranks" in state.parts else state.rows).ranks
    ranks[0, 3] = 9.0
    with raises(KeyStateError, reason="content", named="column 0"):
        packer.unpack(unseal(seal([*packer.pack(held), b""]))[:-1])


def test_counts_that_no_labels_can_have_are_refused():
    model = DecidingClassifier(CPMClassifier(), class_weight="balanced")
    model.learn_many(*ring(10))
    header, arrays = model.state()
    for count in (-1, 1 << 60, (1 << 63) - 1):
        with raises(ArchiveError, reason="content", named="counts of labels"):
            DecidingClassifier.from_state(header, arrays | {"counts": np.array([3, count])})


def history() -> Any:
    """Return the state of a history of one sample."""
    model, history = BSGDClassifier(), History()
    model.learn_many([{"a": float(i % 2), "b": float(i % 7)} for i in range(300)], [i % 2 for i in range(300)])
    history.sample(model, 300, 300, ["up", "down"], [150, 150])
    header, arrays = history.state()
    return json.loads(json.dumps(header)), arrays


@pytest.mark.parametrize(
    ("part", "change"),
    [
        (Metrics, lambda header, arrays: header["labels"].__setitem__(0, [[]])),
        (Metrics, lambda header, arrays: header.__setitem__("leader", 2)),
        (Metrics, lambda header, arrays: header["measures"]["ranking"].__setitem__("n_events", 2**63)),
        (Metrics, lambda header, arrays: header["drops"].__setitem__("_levels", [[129]])),
        (Metrics, lambda header, arrays: np.put(arrays["pairs"], 1, -1)),
        (Metrics, lambda header, arrays: np.put(arrays["pairs"], 0, 2**40)),
        (Metrics, lambda header, arrays: np.put(arrays["measures._scores"], 0, 2.0)),
        (Metrics, lambda header, arrays: arrays.update(seen=arrays["seen"].astype(float))),
        (Metrics, lambda header, arrays: arrays.update({"measures.reliability.counts": np.zeros((3, 7), np.int64)})),
        (History, lambda header, arrays: header["samples"][0].__setitem__(0, 2**50)),
        (History, lambda header, arrays: header["samples"][0][4].append([1])),
        (History, lambda header, arrays: np.put(arrays["relevances"], 0, 7.0)),
    ],
)
def test_states_that_no_run_can_have_left_are_refused(part, change):
    left = part_of(fuzz.left("checkpoint")[1], "metrics") if part is Metrics else history()
    header, arrays = copy.deepcopy(left)
    part().restore((header, arrays))
    change(header, arrays)
    with pytest.raises(CORRUPT_ERRORS):  # a run reports these as errors of the checkpoint
        part().restore((header, arrays))
