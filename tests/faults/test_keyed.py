"""Models per key on an engine whose workers die, stall and exchange partitions, against a model per key alone."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streamsvm import BSGDClassifier, CPMClassifier
from streamsvm.keyed import KeyedClassifier
from streamsvm.keyed.quix import Live

KEYS, WORKERS, PARTITIONS = st.integers(0, 3), st.integers(0, 1), st.integers(0, 1)
EVENTS = st.fixed_dictionaries({"a": st.integers(-3, 3)}, optional={"label": st.sampled_from(["x", "y", 2])})


class Topic:
    """Events, and what was committed: offsets, states and answers."""

    def __init__(self) -> None:
        self.events: dict[int, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        self.owners: dict[int, int] = {0: 0, 1: 1}
        self.offsets: dict[int, int] = defaultdict(int)
        self.states: dict[tuple[int, int], bytes] = {}
        self.answers: dict[tuple[int, int], Any] = {}


class Transaction:
    """Changes of a worker since its last commit."""

    def __init__(self, topic: Topic) -> None:
        self.topic, self.states, self.answers = topic, dict[Any, bytes](), dict[Any, Any]()
        self.offsets: dict[int, int] = {}

    def state(self, place: tuple[int, int]) -> Any:
        """Return the state of a key, valid until the commit."""

        def set_bytes(_: str, data: bytes, ttl: Any = None) -> None:
            self.states[place] = data

        found = lambda _: self.states.get(place, self.topic.states.get(place))  # noqa: E731
        return SimpleNamespace(get_bytes=found, set_bytes=set_bytes)


class Worker:
    """A worker of the engine with its cache of models."""

    def __init__(self, number: int, topic: Topic, model: Any, lasting: bool) -> None:
        self.number, self.topic = number, topic
        self.live = Live(KeyedClassifier(model), max_live=3, lasting=lasting)
        self.begin()

    def begin(self) -> None:
        """Take the partitions that are assigned, from their committed offsets on."""
        owners = self.topic.owners
        self.partitions = [partition for partition in owners if owners[partition] == self.number]
        self.changes = Transaction(self.topic)

    def work(self, partition: int, n: int) -> None:
        """Process the next events of a partition."""
        offset = self.changes.offsets.get(partition, self.topic.offsets[partition])
        place = SimpleNamespace(partition=partition)
        for key, event in self.topic.events[partition][offset : offset + n]:
            with mock.patch("streamsvm.keyed.quix.message_context", return_value=place):
                self.changes.answers[partition, offset] = self.live.step(
                    key, event, self.changes.state((partition, key))
                )
            offset += 1
        self.changes.offsets[partition] = offset

    def commit(self) -> None:
        """Commit, unless another worker has a partition: then changes are discarded."""
        self.live.flush()
        if all(self.topic.owners[partition] == self.number for partition in self.partitions):
            self.topic.states |= self.changes.states
            self.topic.answers |= self.changes.answers
            self.topic.offsets |= self.changes.offsets
            self.changes = Transaction(self.topic)
        else:
            self.live.drop()
            self.begin()


class KeyedMachine(RuleBasedStateMachine):
    """Drives two workers with two partitions."""

    @initialize(model=st.sampled_from([CPMClassifier(), BSGDClassifier(budget=3)]), lasting=st.booleans())
    def begin(self, model: Any, lasting: bool) -> None:
        self.topic, self.model, self.lasting = Topic(), model, lasting
        self.workers = [Worker(number, self.topic, model, lasting) for number in range(2)]

    @rule(
        events=st.lists(st.tuples(KEYS, EVENTS), max_size=8),
        n=st.integers(1, 10),
        commits=st.sampled_from([(), (0,), (1,), (0, 1), (1, 0)]),
    )
    def work(self, events: list[tuple[int, dict[str, Any]]], n: int, commits: tuple[int, ...]) -> None:
        """Events arrive, workers process some, and some workers commit."""
        for key, event in events:
            self.topic.events[key % 2].append((key, event))
        for worker in self.workers:
            for partition in worker.partitions:
                worker.work(partition, n)
        for number in commits:
            self.workers[number].commit()

    @rule(worker=WORKERS)
    def die(self, worker: int) -> None:
        """A worker dies before its commit and starts again."""
        self.workers[worker] = Worker(worker, self.topic, self.model, self.lasting)

    @rule(partition=PARTITIONS, to=WORKERS)
    def move(self, partition: int, to: int) -> None:
        """Workers commit before a partition moves, and start again without their caches."""
        for worker in self.workers:
            worker.commit()
        self.topic.owners[partition] = to
        for worker in self.workers:
            worker.live.drop()
            worker.begin()

    @rule(partition=PARTITIONS)
    def lose(self, partition: int) -> None:
        """A stalled worker loses a partition, and learns of it at its next commit."""
        heir = 1 - self.topic.owners[partition]
        self.workers[heir].commit()
        self.topic.owners[partition] = heir
        self.workers[heir].live.drop()
        self.workers[heir].begin()

    @invariant()
    def answers_are_those_of_a_model_per_key(self) -> None:
        """Each event up to the committed offset has one answer, and each key the state of a model alone."""
        keyed = KeyedClassifier(self.model)
        for partition, offset in self.topic.offsets.items():
            events: dict[int, list[Any]] = defaultdict(list)
            answers: dict[int, list[Any]] = defaultdict(list)
            for i, (key, event) in enumerate(self.topic.events[partition][:offset]):
                events[key].append(event)
                answers[key].append(self.topic.answers[partition, i])
            for key in events:
                assert keyed.step(None, events[key]) == (answers[key], self.topic.states[partition, key])
        assert len(self.topic.answers) == sum(self.topic.offsets.values())


TestKeyed = pytest.mark.slow(KeyedMachine.TestCase)
TestKeyed.settings = settings(max_examples=6, stateful_step_count=20, phases=[Phase.generate])
