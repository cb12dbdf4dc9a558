"""Transactional producer that can be abandoned, and the record limits of topics."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any

from connectors.errors import ConnectorError
from connectors.kafka.clients import Brokers, convert_errors, largest_record, logger
from connectors.kafka.failures import is_recoverable
from connectors.outputs.results import json_bytes

_SMALLEST = 200  # bytes of a row without its texts


class SizeLimits:
    """Maximum sizes of the records of topics in bytes, including the key.

    Parameters
    ----------
    brokers
        Brokers of the topics.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers, self.by_topic = brokers, dict[str, int]()
        self._most = int(brokers.client.get("max_request_size", 1 << 20)) - 1024

    def add(self, topic: str, size: int | None) -> None:
        """Set the maximum of a topic, None if unknown; ConnectorError if no row fits."""
        self.by_topic[topic] = size = self._most if size is None else min(size, self._most)
        if size < _SMALLEST:
            what, option = f"the topic {topic!r} takes no record large enough for a row", "max.message.bytes"
            if size == self._most:
                what, option = "no row fits into a request", "max_request_size"
            raise ConnectorError(f"{self._brokers.name}: {what}: raise `{option}`", "too small", option=option)

    def lower(self) -> None:
        """Set the reduced maxima after a broker refused a record."""
        with contextlib.closing(self._brokers.admin()) as client:
            found = {topic: largest_record(client, topic) for topic in self.by_topic}
        less = {topic: size for topic, size in found.items() if size is not None and size < self.by_topic[topic]}
        # If the query is denied or does not explain the error, halve the size.
        for topic, size in (less or {topic: size // 2 for topic, size in self.by_topic.items()}).items():
            what = "%s: the topic %s takes less than at first: now %d bytes a record"
            logger.warning(what, self._brokers.name, topic, size)
            self.add(topic, size)


def too_large(size: int) -> str:
    """Return the reason for rejecting a record; a resumed run must find an equal one."""
    return f"too large for its topic: {size:,} bytes"


def without_value(name: str, letter: bytes, largest: int) -> bytes:
    """Return a dead letter without the value that it contains.

    Parameters
    ----------
    name
        Name of the sink in messages.
    letter
        The dead letter as JSON, with the value in `raw`.
    largest
        Maximum size in bytes.

    Returns
    -------
    bytes
        The dead letter with null as `raw`, and the size of the value in `raw_too_large`.

    Raises
    ------
    ConnectorError
        If it is not a dead letter, or still too large.
    """
    row = json.loads(letter)
    if raw := row.get("raw"):
        row |= {"raw": None, "raw_too_large": f"{len(raw):,} characters"}
        if len(short := json_bytes(row)) <= largest:
            return short
    raise ConnectorError(
        f"{name}: a record of {len(letter):,} bytes is larger than the topic and `max_request_size` allow "
        f"({max(0, largest):,} bytes): {letter[:200]!r}; raise `max.message.bytes` of the topic"
    )


_CHECK_S = 0.1  # between two checks of a batch
_JOIN_S = 60.0  # for the thread of an abandoned producer to end
_OVERHEAD = 32  # bytes of a record in addition to its key and value
_HEADER = 61  # bytes of a batch
_UNBOUNDED = 1 << 30  # bytes of a batch: `split_by_size` has bounded it

Keys = list[bytes | None]
Values = list[bytes]

RecordRange = tuple[Any, Keys, Values, int]
"""A partition, keys and values of records that are one batch, and their time."""


def split_by_size(keys: Sequence[bytes | None], values: Sequence[bytes], most: int) -> Iterator[tuple[int, int]]:
    """Split records into ranges of at most `most` bytes, each of at least one record."""
    start, size = 0, _HEADER
    for i, (key, value) in enumerate(zip(keys, values, strict=True)):
        more = len(value) + (len(key) if key else 0) + _OVERHEAD
        if size + more > most and i > start:
            yield start, i
            start, size = i, _HEADER
        size += more
    if start < len(values):
        yield start, len(values)


def metadata_of(consumer: Any) -> Any:
    """Return the metadata of a consumer with the ids of topics, which are not public."""
    return consumer._client.cluster


def _batch_of(producer: Any, records: RecordRange) -> Any:
    """Return records as a batch of the client."""
    from kafka.producer.producer_batch import ProducerBatch
    from kafka.record.memory_records import MemoryRecordsBuilder

    tp, keys, values, now = records
    builder = MemoryRecordsBuilder(2, producer._accumulator.config["compression_attrs"], _UNBOUNDED)
    for key, value in zip(keys, values, strict=True):
        builder.append(now, key, value)
    return ProducerBatch(tp, builder)


def queue(producer: Any, records: RecordRange) -> Any:
    """Queue records as one batch of the transaction; return the future of the batch.

    `KafkaProducer.send` checks each record and wraps it in objects, which takes about 20 us. A run with predictions is
    1.5 to 2 times as fast if a whole batch joins the queue of the producer. There is no public interface for this: a
    version of the client that lacks one of these attributes ends the run.
    Sequence numbers, transaction, compression, retries and splitting remain those of the client.
    """
    from kafka.errors import IllegalStateError

    tp, accumulator = records[0], producer._accumulator
    producer.partitions_for(tp.topic)  # the producer then knows their leaders
    producer._transaction_manager.maybe_add_partition_to_transaction(tp)
    batch = _batch_of(producer, records)
    with accumulator._tp_lock(tp):
        if accumulator._closed:
            raise IllegalStateError("the producer is closed")
        accumulator._batches[tp].append(batch)
        accumulator._incomplete.add(batch)
    producer._sender.wakeup()
    return batch.produce_future


def check_queued(producer: Any, future: Any) -> None:
    """Wait for a queued batch; raise its error if the broker did not accept it."""
    from kafka.errors import MessageSizeTooLargeError

    while not future.wait(_CHECK_S):
        if not producer._accumulator.has_incomplete and not future.is_done:
            raise MessageSizeTooLargeError("a batch was split")  # the futures of its parts are unknown
    _, _, error_of = future.value
    if error_of is not None:
        raise error_of(0)


class BackgroundCall(Future[None]):
    """Future of a call in a daemon thread.

    Parameters
    ----------
    call
        Function to call.
    name
        Name of the thread.
    """

    def __init__(self, call: Callable[[], Any], name: str) -> None:
        super().__init__()
        threading.Thread(target=self._run, args=(call,), name=name, daemon=True).start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            call()
            self.set_result(None)
        except Exception as error:
            self.set_exception(error)

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the call; return whether it has ended."""
        return bool(wait([self], seconds).done)


class TransactionalProducer:
    """Transactional producer; a newer one with this id fences off an older one.

    Parameters
    ----------
    brokers
        Brokers to write to.
    identity
        Transactional id.
    """

    def __init__(self, brokers: Brokers, identity: str) -> None:
        settings: dict[str, Any] = {"max_block_ms": 20_000, "metrics_enabled": False, "batch_size": 1 << 17}
        # A broker ends a transaction a few milliseconds after its response, and delays the next one until then.
        settings |= {"retry_backoff_ms": 5, **brokers.client, "transactional_id": identity}
        self._producer = brokers.open("KafkaProducer", **settings)
        self._failure: Exception | None = None  # error before the end of the transaction
        self._futures: list[Any] = []  # of its records
        try:
            with convert_errors(brokers.name, f"transactions as {identity} cannot be started", is_recoverable):
                self._producer.init_transactions()
        except BaseException:
            self.abandon()
            raise

    def begin(self) -> None:
        """Begin a transaction."""
        self._producer.begin_transaction()

    def send(self, records: RecordRange) -> None:
        """Send records in the open transaction; `commit` raises the error if this fails."""
        if self._failure is not None:
            return  # the whole transaction will be repeated
        try:
            self._futures.append(queue(self._producer, records))
        except Exception as error:
            self._failure = error

    def commit(self, offsets: Mapping[Any, Any], group: str) -> None:
        """Commit the transaction, including the offsets of a group."""
        if self._failure is not None:
            raise self._failure
        if offsets:
            self._producer.send_offsets_to_transaction(offsets, group)
        # kafka-python 3.0.12 commits without records that failed, or reports a commit that it has aborted for them.
        for future in self._futures:
            check_queued(self._producer, future)
        self._futures = []
        self._producer.commit_transaction()

    def topic_id(self, topic: str) -> str | None:
        """Return the topic id that the client received last, and request an update."""
        cluster = self._producer._metadata  # there is no public access to the ids of topics
        cluster.request_update()
        found = cluster.topic_id(topic)
        return None if found is None else str(found)

    @property
    def refusal(self) -> Exception | None:
        """Error of the transaction, which the client may report only after a long wait."""
        manager: Any = self._producer._transaction_manager  # there is no public interface
        return manager.last_error if manager.has_error() else None

    def abort(self) -> BackgroundCall:
        """Abort the transaction in the background."""
        return BackgroundCall(self._producer.abort_transaction, "abort")

    def abandon(self) -> BackgroundCall:
        """Close the producer in the background and discard its records.

        `KafkaProducer.close` first sends the records. If it cannot, for example because the topic was deleted,
        kafka-python 3.0.12 does not close, and its thread never ends.
        """
        self._producer._sender.force_close()  # there is no public interface to discard records
        return BackgroundCall(self._end, "a producer ends")

    def _end(self) -> None:
        from kafka.errors import KafkaConnectionError

        self._producer._sender.join(_JOIN_S)  # it may be waiting for a broker
        with contextlib.suppress(Exception):
            self._producer.close(timeout=0)
        # Otherwise calls that wait for the transaction never end.
        self._producer._transaction_manager.authentication_failed(KafkaConnectionError("the producer was closed"))
