"""`DelayedClassifier` called in any order, copied and misused, against a model."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from river.naive_bayes import GaussianNB

from streamsvm import BSGDClassifier, CPMClassifier, DelayedClassifier
from tests.delayed.test_join import Twin

KEYS, TIMES = st.integers(0, 5), st.one_of(st.none(), st.integers(0, 60))
COUNTS = ("answered", "late", "repeated", "corrected", "duplicates", "expired", "unmatched", "dropped")


class Learning(Twin):
    """Reference of the join with a model that learns each label with its features."""

    def __init__(self, model: Any, *join: Any) -> None:
        super().__init__(*join)
        self.model, self.answer, self.shares = model, None, dict[str, float]()

    def learn(self, slot: dict[str, Any], label: str) -> None:
        super().learn(slot, label)
        self.model.learn_one({"x": slot["x"] % 7, "z": slot["x"]}, label)

    def _event(self, key: int, time: int) -> None:
        n = float(len(self.predicted) + 1)
        x = {"x": n % 7, "z": n}
        self.answer, self.shares = self.model.predict_one(x), self.model.predict_proba_one(x)
        super()._event(key, time)


class DelayedMachine(RuleBasedStateMachine):
    """Drives a classifier."""

    @initialize(
        model=st.sampled_from([CPMClassifier, BSGDClassifier, GaussianNB]),
        wait=st.sampled_from([None, 5, 20]),
        most=st.sampled_from([1, 3, 100]),
        on_timeout=st.sampled_from([None, "c0"]),
        relearns=st.booleans(),
    )
    def begin(self, model: Any, wait: int | None, most: int, on_timeout: str | None, relearns: bool) -> None:
        on_timeout = None if wait is None else on_timeout
        self.model = DelayedClassifier(model(), wait, on_timeout, most, relearn_corrections=relearns)
        self.twin = Learning(model(), None if wait is None else 1000 * wait, most, on_timeout, relearns)

    def moment(self, time: int | None) -> int:
        """Return a time in milliseconds, by default the newest one so far."""
        return max(0, self.twin.clock) if time is None else 1000 * time

    @rule(key=KEYS, time=TIMES, proba=st.booleans())
    def predict(self, key: int, time: int | None, proba: bool) -> None:
        n = float(len(self.twin.predicted) + 1)
        x = {"x": n % 7, "z": n}
        answer: Any = (self.model.predict_proba_one if proba else self.model.predict_one)(x, key=key, time=time)
        x.clear()  # the stored features do not change
        self.twin.take("event", key, self.moment(time), 0)
        assert answer == (self.twin.shares if proba else self.twin.answer)

    @rule(key=KEYS, time=TIMES, label=st.integers(0, 2), with_features=st.booleans())
    def learn(self, key: int, time: int | None, label: int, with_features: bool) -> None:
        """Other features that come with the label have no effect."""
        if with_features:
            self.model.learn_one({"x": 1e9}, f"c{label}", key=key, time=time)
        else:
            self.model.learn_one(key, f"c{label}", time=time)
        self.twin.take("label", key, self.moment(time), label)

    @rule(x=st.floats(-5, 5), label=st.sampled_from(["c0", "c1", "c2"]))
    def learn_features(self, x: float, label: str) -> None:
        """Features with their label are learned at once."""
        for model in (self.model, self.twin.model):
            model.learn_one({"x": x, "z": 1.0}, label)

    @rule()
    def replace_by_a_copy(self) -> None:
        """The earlier one goes on alone."""
        before, self.model = self.model, copy.deepcopy(self.model)
        for key in range(6):
            before.predict_one({"x": 1.0, "z": 1.0}, key=key)
            before.learn_one(key, "c2")

    @rule(
        key=KEYS,
        time=st.sampled_from([5, "soon", float("nan"), 1e300]),
        label=st.sampled_from([None, float("nan"), "c1"]),
    )
    def learn_invalid(self, key: int, time: Any, label: Any) -> None:
        """Invalid labels and times are refused, and change nothing."""
        if (time, label) != (5, "c1"):
            with pytest.raises((ValueError, TypeError, OverflowError)):
                self.model.learn_one(key, label, time=time)

    @rule(key=st.sampled_from([[], {}, object()]))
    def predict_invalid(self, key: Any) -> None:
        with pytest.raises((ValueError, TypeError)):
            self.model.predict_one({"x": 1.0}, key=key)

    @invariant()
    def counts_are_those_of_the_model(self) -> None:
        if counts := self.model.counts:
            assert {name: counts[name] for name in COUNTS} == self.twin.n
            assert self.model.n_pending == sum(slot["fate"] == "waiting" for slot in self.twin.slots)


TestDelayed = pytest.mark.slow(DelayedMachine.TestCase)
TestDelayed.settings = settings(max_examples=15, stateful_step_count=25, phases=[Phase.generate])
