"""Some of what `python -m tests.fuzz` tries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamsvm import CPMClassifier, DecidingClassifier, StreamSVMClassifier
from streamsvm.keyed.packing import KeyStateError, Packer, seal, unseal
from streamsvm.models import ArchiveError
from tests import fuzz
from tests.learners import ring

pytestmark = pytest.mark.usefixtures("unsynced")


@pytest.mark.parametrize(
    ("kind", "n"), [("archive", 100), ("key", 150), ("checkpoint", 12), ("decisions", 12), ("late", 12)]
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
    assert packer.unpack(unseal(seal(packer.pack(held)), 4)).learner.n_events_learned == 60
    ranks[0, 3] = 9.0
    with pytest.raises(KeyStateError, match="sorted values of column 0 are not its values"):
        packer.unpack(unseal(seal(packer.pack(held)), 4))


@pytest.mark.parametrize("count", [-1, 1 << 60, (1 << 63) - 1])
def test_counts_that_no_labels_can_have_are_refused(count: int) -> None:
    model = DecidingClassifier(CPMClassifier(), class_weight="balanced")
    model.learn_many(*ring(10))
    header, arrays = model.state()
    with pytest.raises(ArchiveError, match="counts of labels"):
        DecidingClassifier.from_state(header, arrays | {"counts": np.array([3, count])})
