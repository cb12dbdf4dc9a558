"""A part of the trials of `python -m tests.fuzz`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamsvm import BSGDClassifier, CPMClassifier, DecidingClassifier, StreamSVMClassifier
from streamsvm.keyed.packing import Packer
from streamsvm.keyed.sections import KeyStateError, seal, unseal
from streamsvm.models import ArchiveError
from tests import fuzz
from tests.errors import raises
from tests.learners import ring

pytestmark = pytest.mark.usefixtures("unsynced")


@pytest.mark.parametrize(
    ("kind", "n"), [("archive", 60), ("key", 100), ("checkpoint", 8), ("decisions", 8), ("late", 8)]
)
def test_crafted_states_are_refused_or_work(kind: str, n: int, tmp_path: Path) -> None:
    assert sum(fuzz.trial(kind, number, tmp_path) for number in range(n)) > n // 2


@pytest.mark.parametrize("make", [lambda: CPMClassifier(scaling="rank"), lambda: StreamSVMClassifier(budget=5)])
def test_ranks_of_a_key_that_are_not_those_of_its_values_are_refused(make) -> None:
    packer = Packer(make())
    held = packer.begin()
    X, y = ring(60)
    held.learner.learn_many(X, y)
    state = held.learner._state
    ranks = (state.ranks if "ranks" in state.parts else state.rows).ranks
    assert packer.unpack(unseal(seal([*packer.pack(held), b""]))[:-1]).learner.n_events_learned == 60
    ranks[0, 3] = 9.0
    with raises(KeyStateError, reason="content", named="column 0"):
        packer.unpack(unseal(seal([*packer.pack(held), b""]))[:-1])


def test_counts_that_no_labels_can_have_are_refused() -> None:
    model = DecidingClassifier(CPMClassifier(), class_weight="balanced")
    model.learn_many(*ring(10))
    header, arrays = model.state()
    for count in (-1, 1 << 60, (1 << 63) - 1):
        with raises(ArchiveError, reason="content", named="counts of labels"):
            DecidingClassifier.from_state(header, arrays | {"counts": np.array([3, count])})


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        (CPMClassifier, "rows.count", 0.5),
        (CPMClassifier, "rows.present", 0.5),
        (CPMClassifier, "rows.began", 1e6),
        (CPMClassifier, "rows.due", -1.0),
        (CPMClassifier, "classes.scale", 0.0),
        (CPMClassifier, "classes.mean_u", 0.0),
        (CPMClassifier, "classes.next_count", 0.0),
        (CPMClassifier, "classes.mean_v", 0.5),
        (BSGDClassifier, "rows.count", 0.5),
        (StreamSVMClassifier, "rows.began", 1e6),
    ],
)
def test_numbers_that_no_stream_can_have_left_are_refused(make, name: str, value: float) -> None:
    model = make()
    model.learn_many(*ring(60))
    header, arrays = model.state()
    assert make.from_state(header, arrays).n_events_learned == 60
    changed = arrays[name].copy()
    changed.flat[0] = value
    with raises(ArchiveError, reason="content"):
        make.from_state(header, arrays | {name: changed})


def test_changes_that_once_ended_a_run_are_refused(tmp_path: Path) -> None:
    assert fuzz.trial("checkpoint", 500_224, tmp_path)
    for number in (500_916, 501_415, 502_144, 502_376, 297):
        assert fuzz.trial("late", number, tmp_path), number


def test_a_class_without_a_label_is_refused() -> None:
    model = CPMClassifier()
    model.learn_many(*ring(10))
    header, arrays = model.state()
    with raises(ArchiveError, reason="content"):
        CPMClassifier.from_state(header | {"classes": [None, *header["classes"][1:]]}, arrays)
