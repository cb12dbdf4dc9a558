"""One model per key on Quix Streams, with models cached between checkpoints.

Quix Streams reads partitions of Kafka topics as a consumer group. It stores the state of each key in RocksDB and in a
changelog topic, and commits state, results and offsets in one transaction. A `KeyedClassifier` is a stateful function:
``sdf.apply(KeyedClassifier(model), stateful=True)`` reads and writes the state of a key for every event. With
`apply_keyed`, a state is read at the first event of its key after a checkpoint, and written at the next checkpoint.
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

from streamsvm.keyed.classifier import STATE, KeyCache, KeyedClassifier
from streamsvm.keyed.consumer_timeouts import bound_calls
from streamsvm.signals import end_next_time, ending_signals

with warnings.catch_warnings(record=True):  # deprecation warnings of the engine's dependencies
    try:
        import quixstreams
    except ImportError as error:
        raise ImportError("`streamsvm.keyed.quix` needs Quix Streams: pip install 'streamsvm[quix]'") from error
    from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec
    from quixstreams import State, message_context
    from quixstreams.dataframe import StreamingDataFrame
    from quixstreams.models.topics import Topic, TopicAdmin, TopicConfig, TopicManager
    from quixstreams.sinks import BaseSink
    from quixstreams.state.rocksdb import RocksDBOptions

MAX_KEYS = 10_000
"""Maximum number of cached keys, and of events between checkpoints."""

TRANSACTION_S = 20.0
"""Time after which brokers abort the transaction of a killed worker.

Until then, readers stop before it.
"""

LARGEST_BYTES = 50_000_000
"""Maximum size of a state that default brokers and clients can transfer."""

_MIB = 1024 * 1024
# The engine's defaults are up to 192 MiB of write buffers for each partition, and a block cache of 1 GiB.
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
    "commit_every": MAX_KEYS,
    "consumer_poll_timeout": 0.1,
    "rocksdb_options": RocksDBOptions(**_ROCKSDB),
}
PRODUCER = {
    "transaction.timeout.ms": round(TRANSACTION_S * 1000),
    "linger.ms": 10,
    "message.max.bytes": LARGEST_BYTES,
}
# For each assigned partition, the engine's queries wait for a fetch request of events: 0.16 s each by default.
CONSUMER = {
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 2000,
    "fetch.wait.max.ms": 50,
    "queued.max.messages.kbytes": 16 * 1024,  # prefetched events; default 64 MiB
    "topic.metadata.refresh.interval.ms": 10_000,  # new partitions are noticed within this time
}
_KEPT = 2
"""Factor of `key_ttl` after which the engine removes an inactive key.

Before, the next event of the key resets it.
"""

_REPLACED = ("_on_assign", "_on_revoke", "_on_lost", "_process_message", "_setup_signal_handlers")
_RESPONSE_S, _PAUSE_S = 30.0, 0.05
logger = logging.getLogger("streamsvm.keyed")


class _Topics(TopicManager):
    """Creates the engine's internal topics with a larger maximum record size.

    Changelogs get as many partitions as their source topic. Before that, the functions in `before_enlarging` are called
    with the previous number of partitions.
    """

    def __init__(self, admin: TopicAdmin, consumer_group: str, before_enlarging: Sequence[Callable[[int], None]]):
        super().__init__(admin, consumer_group)
        self._before_enlarging = before_enlarging

    def changelog_topic(self, stream_id: str | None, store_name: str, config: TopicConfig) -> Topic:
        self._enlarge(self._internal_name("changelog", stream_id, store_name), config.num_partitions or 1)
        return super().changelog_topic(stream_id, store_name, config)

    def _enlarge(self, name: str, partitions: int) -> None:
        """Increase the number of partitions of an existing topic, if it has fewer."""
        found = self._size(name)
        if found is None or found >= partitions:
            return
        for call in self._before_enlarging:
            call(found)
        logger.warning(
            "kafka topic %s: enlarged from %d to %d partitions, as its source; keys that producers now send to another "
            "partition %s",
            *(name, found, partitions),
            "take their state with them" if self._before_enlarging else "start again there",
        )
        try:
            self._admin.admin_client.create_partitions([NewPartitions(name, partitions)])[name].result(_RESPONSE_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_PARTITIONS:  # another worker was first
                raise
        deadline = time.monotonic() + _RESPONSE_S
        while (self._size(name) or 0) < partitions and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)

    def _size(self, name: str) -> int | None:
        """Return the number of partitions of a topic; None if it does not exist."""
        found = self._admin.inspect_topics([name])[name]
        return None if found is None else found.num_partitions

    @classmethod
    def derive_topic_config(cls, topics: Iterable[Topic]) -> TopicConfig:
        config = super().derive_topic_config(topics)
        config.extra_config["max.message.bytes"] = str(LARGEST_BYTES)
        return config


def _check_engine() -> None:
    """Refuse a version of the engine without the methods replaced here.

    Raises
    ------
    ImportError
        If a method is missing. It would no longer be replaced, and events could be processed twice.
    """
    replaced = {quixstreams.Application: _REPLACED, TopicManager: ("_internal_name",)}
    for engine, names in replaced.items():
        if lacking := next((name for name in names if not hasattr(engine, name)), None):
            what = f"Quix Streams {quixstreams.__version__} lacks `{engine.__name__}.{lacking}`"
            raise ImportError(f"{what}: pip install --upgrade 'streamsvm[quix]'")


class Application(quixstreams.Application):
    """Quix Streams application with exactly-once processing from the first event on.

    It differs from `quixstreams.Application` in its defaults, and fixes two problems of version 3.28:

    1. The state of a partition is restored up to the last stable offset of its changelog. An open transaction of a
       killed worker keeps this offset back, so later commits of other workers are missed and state is lost. Here, a
       worker starts with a partition only after all transactions in its changelog have ended.
    2. A worker that lost its partitions, for example after a long pause, continues its transaction with old results,
       and events are processed twice. Here, the transaction and its results are discarded.

    Parameters
    ----------
    broker_address
        See `quixstreams.Application`.
    consumer_group
        The consumer group of the workers; it also names the state and its changelog topic.
    **options
        See `quixstreams.Application`. By default, processing is exactly-once and starts at the earliest event, with a
        checkpoint every second or 10,000 events. Transactions of killed workers end after 20 s, and their partitions
        are reassigned after 10 s.

    Attributes
    ----------
    ended_by
        The number of the signal that stopped the application, None without a signal.
    before_enlarging
        Functions that are called with the number of partitions of a changelog before it gets more.
    first_paused
        Function that returns the first paused partition of events, None if there is none.
    """

    def __init__(self, broker_address: Any, *, consumer_group: str, **options: Any) -> None:
        _check_engine()
        producer = PRODUCER | options.pop("producer_extra_config", {})
        consumer = CONSUMER | options.pop("consumer_extra_config", {})
        self.ended_by: int | None = None
        self.when_gone: list[Callable[[], None]] = []
        self.before_enlarging: list[Callable[[int], None]] = []
        self.first_paused: Callable[[], int | None] = lambda: None
        self._held: set[tuple[str, int]] = set()
        self.topics = _Topics(TopicAdmin(broker_address, extra_config=producer), consumer_group, self.before_enlarging)
        super().__init__(
            broker_address,
            consumer_group=consumer_group,
            topic_manager=self.topics,
            producer_extra_config=producer,
            consumer_extra_config=consumer,
            **_DEFAULTS | options,
        )
        bound_calls(self._consumer, consumer_group, self.config.consumer_poll_timeout)
        self._unfinished_s = producer["transaction.timeout.ms"] / 1000 + _RESPONSE_S

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the application, and raise the original error of a failed rebalance.

        Parameters
        ----------
        *args, **kwargs
            See `quixstreams.Application.run`.
        """
        self._failed_in_moving: Exception | None = None
        try:
            return super().run(*args, **kwargs)
        # The client and the engine replace errors of callbacks by these.
        except (SystemError, quixstreams.exceptions.PartitionAssignmentError) as error:
            raise self._failed_in_moving or error from None

    @contextlib.contextmanager
    def _rebalancing(self) -> Iterator[None]:
        """Keep the error of a rebalance callback for `run`."""
        try:
            yield
        except Exception as error:
            self._failed_in_moving = error
            raise

    def _on_assign(self, consumer: Any, topic_partitions: list[TopicPartition]) -> None:
        changelogs = {topic.name for topic in self.topics.changelog_topics_list}
        with self._rebalancing():
            self._check_partitions()
            self._await_transactions([tp for tp in topic_partitions if tp.topic in changelogs])
            super()._on_assign(consumer, topic_partitions)
            self._held.clear()
            self._pause_partitions()
        if self.ended_by is not None:  # a signal arrived during the start
            self.stop()

    def _check_partitions(self) -> None:
        """Stop if a topic has more partitions than at the start.

        The changelog is enlarged only at a start. Workers without new partitions stop too, because keys may move
        to their partitions.
        """
        # Not with the consumer: its client aborts the process if a callback does this.
        client = AdminClient(self.config.broker_address.as_librdkafka_dict())
        for name, topic in self.topics.non_changelog_topics.items():
            found = client.list_topics(name, timeout=_RESPONSE_S).topics[name]
            if len(found.partitions) > (topic.broker_config.num_partitions or 1):
                raise quixstreams.exceptions.QuixException(f"{name} has more partitions now; restart to read them")

    def _pause_partitions(self) -> None:
        """Pause the partitions of events from `first_paused()` on; resume the others."""
        first = self.first_paused()
        if first is None and not self._held:
            return
        topics = self.topics.non_changelog_topics
        assigned = {(tp.topic, tp.partition) for tp in self._consumer.assignment() if tp.topic in topics}
        held = {place for place in assigned if first is not None and place[1] >= first}
        self._consumer.pause([TopicPartition(*place) for place in held])  # the engine may have resumed them
        self._consumer.resume([TopicPartition(*place) for place in (self._held & assigned) - held])
        self._held = held

    def _process_message(self, *args: Any) -> None:
        self._pause_partitions()
        super()._process_message(*args)  # type: ignore[no-untyped-call]

    def _on_revoke(self, consumer: Any, topic_partitions: list[TopicPartition]) -> None:
        with self._rebalancing():
            try:
                super()._on_revoke(consumer, topic_partitions)
            finally:
                self._call_gone()

    def _call_gone(self) -> None:
        for function in self.when_gone:
            function()

    def _await_transactions(self, partitions: list[TopicPartition]) -> None:
        """Wait until these partitions have no open transaction."""
        if not partitions:
            return
        queries = {TopicPartition(tp.topic, tp.partition): OffsetSpec.latest() for tp in partitions}
        client = AdminClient(self.config.broker_address.as_librdkafka_dict())
        deadline = time.monotonic() + self._unfinished_s
        while queries:
            try:
                ends = [_ends(client, queries, level) for level in IsolationLevel]
                queries = {tp: spec for tp, spec in queries.items() if len({end[tp] for end in ends}) > 1}
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
            if queries and time.monotonic() > deadline:
                names = ", ".join(f"{tp.topic}[{tp.partition}]" for tp in queries)
                raise quixstreams.exceptions.QuixException(
                    f"transactions in {names} do not end: check for workers of an older version"
                )
            if queries:
                time.sleep(_PAUSE_S)

    def _on_lost(self, consumer: Any, topic_partitions: list[TopicPartition]) -> None:
        with self._rebalancing():
            super()._on_lost(consumer, topic_partitions)
            self._call_gone()
            self._processing_context.checkpoint.close()
            self._processing_context.init_checkpoint()  # type: ignore[no-untyped-call]

    def _setup_signal_handlers(self) -> None:
        for number in ending_signals():
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _: object) -> None:
        """Stop after the current event with a checkpoint; a second signal kills."""
        end_next_time()
        self.ended_by = number
        self.stop()


def _ends(client: AdminClient, queries: Mapping[TopicPartition, OffsetSpec], level: IsolationLevel) -> dict[Any, int]:
    """Return the end offsets of partitions at an isolation level."""
    found = client.list_offsets(dict(queries), isolation_level=level, request_timeout=_RESPONSE_S)
    return {tp: future.result().offset for tp, future in found.items()}


class ModelCache(BaseSink):
    """Cache of the models of keys that the next checkpoint of the engine writes.

    It is a sink only because the engine flushes sinks before it writes the state at a checkpoint. By default, the cache
    is emptied at every checkpoint. With `lasting`, the caller must call `drop` after a rebalance or a failed
    checkpoint, because a cached model must always match the stored state. `lasting` has no effect with `key_ttl`,
    because the engine then removes states of inactive keys.

    Parameters
    ----------
    keyed
        The classifier.
    max_keys
        Maximum number of cached keys.
    lasting
        Whether keys stay in the cache after a checkpoint.

    Attributes
    ----------
    moved
        Function of a partition, a key and its state there that returns the current state of the key; None if keys never
        moved.
    """

    def __init__(self, keyed: KeyedClassifier, max_keys: int = MAX_KEYS, lasting: bool = False) -> None:
        super().__init__(on_client_connect_success=lambda: None)
        self._lasting = lasting and keyed.key_ttl is None
        idle = keyed.key_ttl
        self._ttl = None if idle is None else _KEPT * (idle if isinstance(idle, timedelta) else timedelta(seconds=idle))
        self._keys = KeyCache(keyed, self._load, self._save, max_keys)
        self._states: dict[Hashable, State[Any, Any]] = {}
        self.moved: Callable[[int, Hashable, bytes | None], bytes | None] | None = None
        self.saved = self.saved_bytes = 0

    def __len__(self) -> int:
        return len(self._keys)

    def __call__(self, value: Any, key: Any, timestamp: int, headers: Any, state: State[Any, Any]) -> dict[str, Any]:
        """Predict and learn an event, for ``sdf.apply(…, stateful=True, metadata=True)``."""
        return self.step(key, value, state)

    def step(self, key: Hashable, event: Mapping[str, Any], state: State[Any, Any]) -> dict[str, Any]:
        """Predict and learn an event of a key with the engine's state of that key.

        The state is used until the next checkpoint.
        """
        place = message_context().partition, key
        self._states[place] = state  # the newest object has the newest event time
        return self._keys.step(place, (event,))[0]

    def _load(self, place: tuple[int, Hashable]) -> bytes | None:
        own = self._states[place].get_bytes(STATE)
        return own if self.moved is None else self.moved(*place, own)

    def _save(self, place: Hashable, data: bytes) -> None:
        self._states[place].set_bytes(STATE, data, ttl=self._ttl)
        self.saved, self.saved_bytes = self.saved + 1, self.saved_bytes + len(data)

    def flush(self) -> None:
        """Write the states of changed keys."""
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
        """Empty the cache; changes since the last checkpoint are lost."""
        self._keys.drop()
        self._states.clear()

    on_paused = drop

    def add(self, *_: Any, **__: Any) -> None:
        """Do nothing; the sink receives no records."""


def apply_keyed(sdf: StreamingDataFrame, keyed: KeyedClassifier, *, max_keys: int = MAX_KEYS) -> StreamingDataFrame:
    """Predict and learn each event of a stream with the model of its key.

    Results are the same as with ``sdf.apply(keyed, stateful=True)``, but the state of a key is read and written only
    once per checkpoint.

    Parameters
    ----------
    sdf
        The stream, with keyed messages.
    keyed
        The classifier.
    max_keys
        Maximum number of cached keys; the least recently used ones are written earlier.

    Returns
    -------
    StreamingDataFrame
        The stream of results.
    """
    cache = ModelCache(keyed, max_keys)
    sdf.processing_context.sink_manager.register(cache)
    return sdf.apply(cache, stateful=True, metadata=True)
