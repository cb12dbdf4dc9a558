"""Copies of templates equal their states, and share nothing that is written."""

from __future__ import annotations

from copy import deepcopy
from fractions import Fraction

import numpy as np
import pytest

from streamsvm import BSGDClassifier, CPMClassifier, StreamSVMClassifier
from streamsvm.core.state import State
from streamsvm.core.template import Template
from tests.errors import raises

LEARNERS = [CPMClassifier(), BSGDClassifier(budget=9), StreamSVMClassifier(effort="high", budget=9)]


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda each: type(each).__name__)
def test_a_copy_equals_its_state_and_has_its_own_memory(learner):
    state = learner._new_state(5, 3)
    template = Template(state)
    one, other = template.copy(), template.copy()
    start, end = one.address, one.address + template.n_bytes
    for mine, made in zip(state.all(), one.all(), strict=True):
        assert mine.schema is made.schema
        assert np.array_equal(mine._without_addresses(), made._without_addresses())
        for name, array in mine.bound.items():
            assert np.array_equal(array, getattr(made, name))
            assert np.shares_memory(array, getattr(made, name)) == (array.size > 0 and not array.flags.writeable)
        words = [int(made._words[word]) for name, word in made.schema.words.items() if name not in ("table", "proba")]
        assert all(start <= address <= end for address in words if address)
    Template.words_of(one)[:] = 1
    template.reset(one)
    for made, again in zip(one.all(), other.all(), strict=True):
        assert np.array_equal(made._without_addresses(), again._without_addresses())


def test_a_copy_of_a_copy_is_equal():
    template = Template(StreamSVMClassifier(effort="low")._new_state(5, 3))
    again = Template(template.copy())
    assert again.n_bytes == template.n_bytes
    assert np.array_equal(again.words, template.words)


def test_the_order_of_substates_does_not_depend_on_their_use():
    state = StreamSVMClassifier(effort="low")._new_state(5, 3)
    made = Template(state).copy()
    for name in reversed(state.parts):
        getattr(made, name)
    assert list(made.parts) == list(state.parts)
    assert made.parts["rows"] is made.rows


def test_a_substate_with_two_places_is_refused():
    state = CPMClassifier()._new_state(5, 3)
    twice = State(state.schema, state.dims, parts={"rows": state.rows, "calibration": state.rows})
    with raises(ValueError, named="two places"):
        Template(twice)


@pytest.mark.parametrize(("first", "second"), [(Fraction(1, 3), Fraction(1, 100)), (np.float32(0.5), 0.01), (1, 1.5)])
def test_learners_share_templates_only_with_equal_settings(first, second):
    for l2 in [first] * 4 + [second]:
        found = CPMClassifier(l2=l2).buffer.l2
    assert found == float(second)


def test_what_a_learner_learns_is_not_in_the_next_one():
    for make in (CPMClassifier, lambda: StreamSVMClassifier(effort="low", members=("linear", "trees"))):
        learners = [make() for _ in range(4)]
        untrained = [learner.buffer._without_addresses().tobytes() for learner in learners]
        for learner in learners[1:]:
            for i in range(40):
                learner.learn_one({"a": float(i % 3), "b": 1.0}, i % 2)
        copies = [deepcopy(learners[3]), make(), learners[3].clone()]
        assert {each.buffer._without_addresses().tobytes() for each in copies[1:]} == set(untrained)
        assert learners[0].buffer._without_addresses().tobytes() in untrained
