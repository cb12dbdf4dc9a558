"""Keyed models with dying and stalling workers, against a model per key alone.

The topic may get more partitions, so that keys move, and the keys may have a prior model.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import orjson
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamsvm import BSGDClassifier, CPMClassifier
from streamsvm.keyed import KeyedClassifier, new_partitions
from streamsvm.keyed.quix import ModelCache
from streamsvm.keyed.topics import Growth

KEYS, WORKERS, PARTITIONS = st.integers(0, 3), st.integers(0, 1), st.integers(0, 3)
EVENTS = st.fixed_dictionaries({"a": st.integers(-3, 3)}, optional={"label": st.sampled_from(["x", "y", 2])})


class Topic:
    """Events, and what was committed: offsets, states with changelog, and answers."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.changelog = folder, list[Any]()
        self.growth: Growth | None = None
        self.events: dict[int, list[tuple[bytes, dict[str, Any]]]] = defaultdict(list)
        self.owners: dict[int, int] = {0: 0, 1: 1}
        self.offsets: dict[int, int] = defaultdict(int)
        self.states: dict[tuple[int, bytes], bytes] = {}
        self.answers: dict[tuple[int, int], Any] = {}

    @property
    def is_drained(self) -> bool:
        """Whether the events from before new partitions were processed."""
        return self.growth is None or all(
            self.offsets[partition] >= end for partition, end in enumerate(self.growth.ends["events"])
        )

    def store(self, states: dict[tuple[int, bytes], bytes], offsets: dict[int, int]) -> None:
        """Store states and append them to the changelog."""
        self.states |= states
        for (partition, key), data in states.items():
            offset, processed = len(self.changelog), orjson.dumps({"events": offsets[partition] - 1})
            headers = [
                (new_partitions.CHANGELOG_CF_MESSAGE_HEADER, b"default"),
                (new_partitions.CHANGELOG_PROCESSED_OFFSETS_MESSAGE_HEADER, processed),
            ]
            found = {"partition": partition, "offset": offset, "key": key + new_partitions.SUFFIX, "value": data}
            found |= {"headers": headers, "timestamp": (1, offset)}
            self.changelog.append(SimpleNamespace(**{name: lambda value=value: value for name, value in found.items()}))


class Copy(new_partitions.MovedStates):
    """Copy of the states of moved keys, read from the changelog of a topic."""

    def __init__(self, topic: Topic, stack: contextlib.ExitStack | None = None) -> None:
        assert topic.growth is not None
        super().__init__(None, "", topic.folder, [topic.growth])  # type: ignore[arg-type]
        self._topic, self._db = topic, self._open()
        if stack is not None:
            stack.enter_context(contextlib.closing(self._db))
        self.catch_up()

    def catch_up(self) -> int:
        self._store(self._topic.changelog)
        return 0


class Transaction:
    """Changes of a worker since its last commit."""

    def __init__(self, topic: Topic) -> None:
        self.topic, self.states, self.answers = topic, dict[Any, bytes](), dict[Any, Any]()
        self.offsets: dict[int, int] = {}

    def state(self, place: tuple[int, bytes]) -> Any:
        """Return the state of a key, valid until the commit."""

        def set_bytes(_: str, data: bytes, ttl: Any = None) -> None:
            self.states[place] = data

        found = lambda _: self.states.get(place, self.topic.states.get(place))  # noqa: E731
        return SimpleNamespace(get_bytes=found, set_bytes=set_bytes)


class Worker:
    """A worker of the engine with its cache of models."""

    def __init__(self, number: int, topic: Topic, keyed: KeyedClassifier, lasting: bool) -> None:
        self.number, self.topic = number, topic
        self.cache = ModelCache(keyed, max_keys=3, lasting=lasting)
        self._copy: Copy | None = None
        self._has_seen_all = False
        self.grow()

    def grow(self) -> None:
        """Begin, with a copy of the states of moved keys if partitions were added."""
        if self.topic.growth is not None:
            self._copy = Copy(self.topic)
            self.cache.moved = self._copy.find
        self.begin()

    def begin(self) -> None:
        """Take the partitions that are assigned, from their committed offsets on."""
        owners = self.topic.owners
        self.partitions = [partition for partition in owners if owners[partition] == self.number]
        self.changes = Transaction(self.topic)

    def work(self, partition: int, n: int) -> None:
        """Process the next events of a partition; a new one waits for earlier events."""
        if partition > 1 and not self._has_seen_all:
            if not self.topic.is_drained:
                return
            assert self._copy is not None
            self._copy.catch_up()
            self._has_seen_all = True
        offset = self.changes.offsets.get(partition, self.topic.offsets[partition])
        place = SimpleNamespace(partition=partition)
        for key, event in self.topic.events[partition][offset : offset + n]:
            with mock.patch("streamsvm.keyed.quix.message_context", return_value=place):
                self.changes.answers[partition, offset] = self.cache.step(
                    key, event, self.changes.state((partition, key))
                )
            offset += 1
        self.changes.offsets[partition] = offset

    def commit(self) -> None:
        """Commit, unless another worker has a partition: then changes are discarded."""
        self.cache.flush()
        if all(self.topic.owners[partition] == self.number for partition in self.partitions):
            self.topic.store(self.changes.states, self.changes.offsets)
            self.topic.answers |= self.changes.answers
            self.topic.offsets |= self.changes.offsets
            self.changes = Transaction(self.topic)
        else:
            self.cache.drop()
            self.begin()


class KeyedMachine(RuleBasedStateMachine):
    """Drives two workers with two partitions, later four."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(
        model=st.sampled_from([CPMClassifier(), BSGDClassifier(budget=3)]), lasting=st.booleans(), prior=st.booleans()
    )
    def begin(self, model: Any, lasting: bool, prior: bool) -> None:
        parent = CPMClassifier()
        for i in range(20):
            parent.learn_one({"a": float(i % 7 - 3)}, "x" if i % 7 > 3 else "y")
        self.topic, self.lasting = Topic(self.folder), lasting
        self.keyed = KeyedClassifier(model, prior_model=parent if prior else None)
        self.workers = [Worker(number, self.topic, self.keyed, lasting) for number in range(2)]

    @rule(
        events=st.lists(st.tuples(KEYS, EVENTS), max_size=8),
        n=st.integers(1, 10),
        commits=st.sampled_from([(), (0,), (1,), (0, 1), (1, 0)]),
    )
    def work(self, events: list[tuple[int, dict[str, Any]]], n: int, commits: tuple[int, ...]) -> None:
        """Events arrive, workers process some, and some workers commit."""
        for key, event in events:
            self.topic.events[key % len(self.topic.owners)].append((b"%d" % key, event))
        for worker in self.workers:
            for partition in worker.partitions:
                worker.work(partition, n)
        for number in commits:
            self.workers[number].commit()

    @rule(worker=WORKERS)
    def die(self, worker: int) -> None:
        """A worker dies before its commit and starts again."""
        self.workers[worker] = Worker(worker, self.topic, self.keyed, self.lasting)

    @precondition(lambda self: self.topic.growth is None)
    @rule()
    def grow(self) -> None:
        """The topic gets two more partitions, and workers start again."""
        ends = [len(self.topic.events[partition]) for partition in range(2)]
        self.topic.growth = Growth(2, {"events": ends}, time.time())
        self.topic.owners |= {2: 0, 3: 1}
        for worker in self.workers:
            worker.cache.drop()
            worker.grow()

    @rule(partition=PARTITIONS, to=WORKERS)
    def move(self, partition: int, to: int) -> None:
        """Workers commit before a partition moves, and start again without their caches."""
        partition %= len(self.topic.owners)
        for worker in self.workers:
            worker.commit()
        self.topic.owners[partition] = to
        for worker in self.workers:
            worker.cache.drop()
            worker.begin()

    @rule(partition=PARTITIONS)
    def lose(self, partition: int) -> None:
        """A stalled worker loses a partition, and learns of it at its next commit."""
        partition %= len(self.topic.owners)
        heir = 1 - self.topic.owners[partition]
        self.workers[heir].commit()
        self.topic.owners[partition] = heir
        self.workers[heir].cache.drop()
        self.workers[heir].begin()

    @invariant()
    def answers_are_those_of_a_model_per_key(self) -> None:
        """Committed events have one answer, and keys the state of a separate model."""
        events: dict[bytes, list[Any]] = defaultdict(list)
        answers: dict[bytes, list[Any]] = defaultdict(list)
        newest: dict[bytes, bytes] = {}
        for partition, offset in sorted(self.topic.offsets.items()):
            for i, (key, event) in enumerate(self.topic.events[partition][:offset]):
                events[key].append(event)
                answers[key].append(self.topic.answers[partition, i])
                newest[key] = self.topic.states[partition, key]
        for key in events:
            assert self.keyed.step(None, events[key]) == (answers[key], newest[key])
        assert len(self.topic.answers) == sum(self.topic.offsets.values())


TestKeyed = pytest.mark.slow(KeyedMachine.TestCase)
TestKeyed.settings = settings(max_examples=6, stateful_step_count=20, phases=[Phase.generate])
