"""One model per key on Quix Streams: what its users write, with models kept live from one checkpoint to the next.

Quix Streams reads partitions of Kafka topics as a consumer group, keeps what a function remembers of a key in RocksDB
and in a changelog topic, and commits state, results and offsets in one transaction. A `KeyedClassifier` is such a
function by itself: ``sdf.apply(KeyedClassifier(model), stateful=True)`` reads and writes a key's state at each event.
`live` has it read at the first event of a key after a checkpoint and written at the next checkpoint.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from streamsvm.keyed.classifier import STATE, KeyedClassifier
from streamsvm.keyed.live import LiveKeys

with warnings.catch_warnings(record=True):  # of what its own dependencies are going to deprecate
    import quixstreams
    from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec
    from quixstreams import State, message_context
    from quixstreams.dataframe import StreamingDataFrame
    from quixstreams.models.topics import Topic, TopicConfig, TopicManager
    from quixstreams.sinks import BaseSink
    from quixstreams.state.rocksdb import RocksDBOptions

MAX_LIVE = 10_000
"""Keys that are kept live, at most, and events from one checkpoint to the next."""

TRANSACTION_S = 20.0
"""After which brokers end the transaction of a worker that was killed; until then nobody reads beyond it."""

LARGEST_BYTES = 50_000_000
"""The most that a state may have: what brokers and clients pass on with their own defaults."""

_MIB = 1024 * 1024
# By default the engine takes up to 192 MiB of write buffers for each partition, and a block cache of 1 GiB.
_ROCKSDB: dict[str, Any] = {
    "write_buffer_size": 8 * _MIB,
    "max_write_buffer_number": 2,
    "max_total_wal_size": 32 * _MIB,
    "block_cache_size": 64 * _MIB,
}
_DEFAULTS: dict[str, Any] = {
    "processing_guarantee": "exactly-once",
    "auto_offset_reset": "earliest",
    "commit_interval": 1.0,
    "commit_every": MAX_LIVE,
    "consumer_poll_timeout": 0.1,
    "rocksdb_options": RocksDBOptions(**_ROCKSDB),
}
_PRODUCER = {
    "transaction.timeout.ms": round(TRANSACTION_S * 1000),
    "linger.ms": 10,
    "message.max.bytes": LARGEST_BYTES,
}
# What the engine asks of each partition that it takes over waits behind a request for events: 0.16 s each by default.
_CONSUMER = {
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 2000,
    "fetch.wait.max.ms": 50,
    "queued.max.messages.kbytes": 16 * 1024,  # 64 MiB by default, of events that are fetched ahead
    "topic.metadata.refresh.interval.ms": 10_000,  # new partitions are noticed within this time
}
_KEPT = 2
"""How many times longer than until it begins anew an idle key is kept: its own events tell when it is idle."""

_ANSWER_S = 30.0
_PAUSE_S = 0.05


logger = logging.getLogger("streamsvm.keyed")


class _Topics(TopicManager):
    """Makes topics of the engine's own with room for states, and for events of whatever size.

    Changelogs get more partitions when their topic did; what `before_enlarging` has is called with how many they had.
    """

    before_enlarging: Sequence[Callable[[int], None]] = ()

    def changelog_topic(self, stream_id: str | None, store_name: str, config: TopicConfig) -> Topic:
        self._enlarge(self._internal_name("changelog", stream_id, store_name), config.num_partitions or 1)
        return super().changelog_topic(stream_id, store_name, config)

    def _enlarge(self, name: str, partitions: int) -> None:
        """Give an existing topic at least so many partitions."""
        found = self._size(name)
        if found is None or found >= partitions:
            return
        for call in self.before_enlarging:
            call(found)
        logger.warning(
            "kafka topic %s: enlarged from %d to %d partitions, as its source; keys that producers now send to another "
            "partition %s",
            *(name, found, partitions),
            "take their state with them" if self.before_enlarging else "begin anew there",
        )
        try:
            self._admin.admin_client.create_partitions([NewPartitions(name, partitions)])[name].result(_ANSWER_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_PARTITIONS:  # another worker was first
                raise
        deadline = time.monotonic() + _ANSWER_S
        while (self._size(name) or 0) < partitions and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)

    def _size(self, name: str) -> int | None:
        """How many partitions a topic has; None if there is no such topic."""
        found = self._admin.inspect_topics([name])[name]
        return None if found is None else found.num_partitions

    @classmethod
    def derive_topic_config(cls, topics: Iterable[Topic]) -> TopicConfig:
        config = super().derive_topic_config(topics)
        config.extra_config["max.message.bytes"] = str(LARGEST_BYTES)
        return config


class Application(quixstreams.Application):
    """An application of Quix Streams that processes each event exactly once, from the first on.

    It differs from its parent in defaults, and closes two gaps of 3.28 through which state could be lost or events
    processed twice: (1) the state of a partition is restored up to the last stable offset of its changelog, which an
    unfinished transaction of a killed worker holds back, so that later commits of others could be missed: here a
    worker takes over no partition before its changelog is settled. (2) A worker that lost its partitions, as it stood
    still for long, goes on with the transaction and results it had: here they are thrown away.

    Parameters
    ----------
    broker_address
        As of `quixstreams.Application`.
    consumer_group
        What the workers have in common; it also names state, and its changelog topic.
    **options
        As of `quixstreams.Application`. Defaults that are others: exactly once, from the earliest event, a checkpoint
        each second or 10,000 events; transactions of workers that were killed end after 20 s, their partitions are
        passed on after 10 s.

    Attributes
    ----------
    ended_by
        The number of the signal that ended it, None where it was none.
    before_enlarging
        Called with how many partitions a changelog has, before it gets more.
    first_held
        Says from which partition on events wait; None where none do.
    """

    def __init__(self, broker_address: Any, *, consumer_group: str, **options: Any) -> None:
        producer = _PRODUCER | options.pop("producer_extra_config", {})
        consumer = _CONSUMER | options.pop("consumer_extra_config", {})
        self.ended_by: int | None = None
        self.when_gone: list[Callable[[], None]] = []
        self.before_enlarging: list[Callable[[int], None]] = []
        self.first_held: Callable[[], int | None] = lambda: None
        self._held: set[tuple[str, int]] = set()
        super().__init__(
            broker_address,
            consumer_group=consumer_group,
            producer_extra_config=producer,
            consumer_extra_config=consumer,
            **_DEFAULTS | options,
        )
        self._unfinished_s = producer["transaction.timeout.ms"] / 1000 + _ANSWER_S

    def _get_topic_manager(self) -> TopicManager:
        self._topic_manager_factory = _Topics
        manager: Any = super()._get_topic_manager()
        manager.before_enlarging = self.before_enlarging
        return manager  # type: ignore[no-any-return]

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """As `quixstreams.Application.run`, but what went wrong while partitions moved is said.

        Parameters
        ----------
        *args, **kwargs
            As of `quixstreams.Application.run`.
        """
        self._failed_in_moving: Exception | None = None
        try:
            return super().run(*args, **kwargs)
        except SystemError as error:  # all that the client passes on of an error in what it calls
            raise self._failed_in_moving or error from None

    @contextlib.contextmanager
    def _moving(self) -> Iterator[None]:
        """While partitions move."""
        try:
            yield
        except Exception as error:
            self._failed_in_moving = error
            raise

    def _on_assign(self, consumer: Any, topic_partitions: list[TopicPartition]) -> None:
        changelogs = {topic.name for topic in self._topic_manager.changelog_topics_list}
        with self._moving():
            self._check_partitions()
            self._settle([tp for tp in topic_partitions if tp.topic in changelogs])
            super()._on_assign(consumer, topic_partitions)
            self._held.clear()
            self._hold()
        if self.ended_by is not None:  # by a signal that came while it was starting
            self.stop()

    def _check_partitions(self) -> None:
        """End where a topic has more partitions than at the start: the next start enlarges the changelog.

        Each worker does, also one that is given none of them: keys may move to the partitions that it has.
        """
        # Not asked by the consumer: its client aborts the process where that is done in what it calls.
        client = AdminClient(self.config.broker_address.as_librdkafka_dict())
        for name, topic in self._topic_manager.non_changelog_topics.items():
            found = client.list_topics(name, timeout=_ANSWER_S).topics[name]
            if len(found.partitions) > (topic.broker_config.num_partitions or 1):
                raise quixstreams.exceptions.QuixException(
                    f"{name} was given more partitions; start again to take them"
                )

    def _hold(self) -> None:
        """Pause the partitions of events from the one on that `first_held` says; resume the others."""
        first = self.first_held()
        if first is None and not self._held:
            return
        topics = self._topic_manager.non_changelog_topics
        assigned = {(tp.topic, tp.partition) for tp in self._consumer.assignment() if tp.topic in topics}
        held = {place for place in assigned if first is not None and place[1] >= first}
        self._consumer.pause([TopicPartition(*place) for place in held])  # again: the engine may have resumed them
        self._consumer.resume([TopicPartition(*place) for place in (self._held & assigned) - held])
        self._held = held

    def _process_message(self, *args: Any) -> None:
        self._hold()
        super()._process_message(*args)  # type: ignore[no-untyped-call]

    def _on_revoke(self, consumer: Any, topic_partitions: list[TopicPartition]) -> None:
        with self._moving():
            try:
                super()._on_revoke(consumer, topic_partitions)
            finally:
                self._forget()

    def _forget(self) -> None:
        """Nobody is to go on with what belonged to partitions that are gone."""
        for forget in self.when_gone:
            forget()

    def _settle(self, partitions: list[TopicPartition]) -> None:
        """Wait until no transaction is under way in these partitions."""
        if not partitions:
            return
        asked = {TopicPartition(tp.topic, tp.partition): OffsetSpec.latest() for tp in partitions}
        client = AdminClient(self.config.broker_address.as_librdkafka_dict())
        deadline = time.monotonic() + self._unfinished_s
        while asked:
            try:
                ends = [_ends(client, asked, level) for level in IsolationLevel]
                asked = {tp: spec for tp, spec in asked.items() if len({end[tp] for end in ends}) > 1}
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
            if asked and time.monotonic() > deadline:
                names = ", ".join(f"{tp.topic}[{tp.partition}]" for tp in asked)
                raise quixstreams.exceptions.QuixException(
                    f"transactions in {names} do not end: are there workers of an older version?"
                )
            if asked:
                time.sleep(_PAUSE_S)

    def _on_lost(self, consumer: Any, topic_partitions: list[TopicPartition]) -> None:
        with self._moving():
            super()._on_lost(consumer, topic_partitions)
            self._forget()
            self._processing_context.checkpoint.close()
            self._processing_context.init_checkpoint()  # type: ignore[no-untyped-call]

    def _setup_signal_handlers(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ended)

    def _ended(self, number: int, _: object) -> None:
        """The first signal ends it after the current event and with a checkpoint, a second one at once."""
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)
        self.ended_by = number
        self.stop()


def _ends(client: AdminClient, asked: Mapping[TopicPartition, OffsetSpec], level: IsolationLevel) -> dict[Any, int]:
    """Where partitions end for readers of a level."""
    found = client.list_offsets(dict(asked), isolation_level=level, request_timeout=_ANSWER_S)
    return {tp: future.result().offset for tp, future in found.items()}


def _span(seconds: timedelta | float) -> timedelta:
    return seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)


class Live(BaseSink):
    """The models of the keys that had an event since the last checkpoint, written when the next one is made.

    The engine tells sinks that a checkpoint is to be made, before it takes up what was written to the state; that is
    all that this has of a sink. Nothing is kept from one checkpoint to the next, unless somebody sees to it that what
    is live is dropped when partitions move or a checkpoint is not made: a model must never be of another moment than
    the state. Nor is it where the engine removes states that are idle.

    Parameters
    ----------
    keyed
        What is done at each event.
    max_live
        How many keys are kept live.
    lasting
        Whether they stay live from one checkpoint to the next.

    Attributes
    ----------
    moved
        Given a partition, a key and its state there, the state that it has; None where keys never moved.
    """

    def __init__(self, keyed: KeyedClassifier, max_live: int = MAX_LIVE, lasting: bool = False) -> None:
        super().__init__(on_client_connect_success=lambda: None)
        self._lasting = lasting and keyed.forget_after is None
        self._ttl = None if keyed.forget_after is None else _KEPT * _span(keyed.forget_after)
        self._keys = LiveKeys(keyed, self._load, self._save, max_live)
        self._states: dict[Hashable, State[Any, Any]] = {}
        self.moved: Callable[[int, Hashable, bytes | None], bytes | None] | None = None
        self.saved = self.saved_bytes = 0

    def __len__(self) -> int:
        return len(self._keys)

    def __call__(self, value: Any, key: Any, timestamp: int, headers: Any, state: State[Any, Any]) -> dict[str, Any]:
        """Predict and learn an event: what `sdf.apply(…, stateful=True, metadata=True)` calls."""
        return self.step(key, value, state)

    def step(self, key: Hashable, event: Mapping[str, Any], state: State[Any, Any]) -> dict[str, Any]:
        """Predict and learn an event of a key, whose state until the next checkpoint is given."""
        place = message_context().partition, key
        self._states[place] = state  # the latest one has the time of the latest event
        return self._keys.step(place, (event,))[0]

    def _load(self, place: tuple[int, Hashable]) -> bytes | None:
        own = self._states[place].get_bytes(STATE)
        return own if self.moved is None else self.moved(*place, own)

    def _save(self, place: Hashable, data: bytes) -> None:
        self._states[place].set_bytes(STATE, data, ttl=self._ttl)
        self.saved, self.saved_bytes = self.saved + 1, self.saved_bytes + len(data)

    def flush(self) -> None:
        """Write what has changed."""
        try:
            self._keys.flush()
        except BaseException:
            self.drop()
            raise
        if self._lasting:
            self._states.clear()
        else:
            self.drop()

    def drop(self) -> None:
        """Forget all, also what was not written."""
        self._keys.drop()
        self._states.clear()

    on_paused = drop

    def add(self, *_: Any, **__: Any) -> None:
        """Nothing is sent here."""


def live(sdf: StreamingDataFrame, keyed: KeyedClassifier, *, max_live: int = MAX_LIVE) -> StreamingDataFrame:
    """Predict and learn each event of a stream with the model of its key.

    As ``sdf.apply(keyed, stateful=True)``, with the same results, but the state of a key is read and written once from
    one checkpoint to the next.

    Parameters
    ----------
    sdf
        The stream, whose messages have the key.
    keyed
        What is done at each event.
    max_live
        How many keys are kept live; the others are written when these are more.

    Returns
    -------
    sdf
        The stream of answers.
    """
    cache = Live(keyed, max_live)
    sdf.processing_context.sink_manager.register(cache)
    return sdf.apply(cache, stateful=True, metadata=True)
