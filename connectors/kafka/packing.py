"""Many records handed to the producer at once.

`KafkaProducer.send` takes one record, checks it, and wraps it in objects of its own, at about twenty microseconds each.
The unit of the protocol is a batch of records, though, and the producer's sender thread deals in batches only. So the
records of a batch are laid out here, and the batch joins the producer's queue as if `send` had filled it: sequence
numbers, transaction, compression, checksum, retries and splitting remain the client's. This reaches past its public
interface; where a version of the client has not what is needed, `send` is used.

Record layout: https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

_SMALL = 1 << 14
_OVERHEAD = 32  # bytes a record may take beside its key and value
_HEADER = 61


def _varint(number: int) -> bytes:
    """A number from 0 on in the protocol's zigzag form.

    Examples
    --------
    >>> _varint(1), _varint(64)
    (b'\\x02', b'\\x80\\x01')
    """
    number <<= 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_VARINTS = [_varint(n) for n in range(_SMALL)]
_NO_KEY = b"\x01"


def pack(keys: Sequence[bytes | None], values: Sequence[bytes]) -> bytes:
    """Encode records as one batch with a single timestamp and no headers."""
    parts: list[bytes] = []
    for i, (key, value) in enumerate(zip(keys, values, strict=True)):
        number = _VARINTS[i] if i < _SMALL else _varint(i)
        n = len(value)
        size = _VARINTS[n] if n < _SMALL else _varint(n)
        named = _NO_KEY if key is None else _varint(len(key)) + key
        record = b"\0\0%b%b%b%b\0" % (number, named, size, value)  # attributes, time delta, ..., count of headers
        n = len(record)
        parts += (_VARINTS[n] if n < _SMALL else _varint(n), record)
    return b"".join(parts)


def stretches(keys: Sequence[bytes | None], values: Sequence[bytes], most: int) -> Iterator[tuple[int, int]]:
    """Split records into ranges of at most `most` bytes, with at least one record each."""
    start, size = 0, _HEADER
    for i, (key, value) in enumerate(zip(keys, values, strict=True)):
        more = len(value) + (len(key) if key else 0) + _OVERHEAD
        if size + more > most and i > start:
            yield start, i
            start, size = i, _HEADER
        size += more
    if start < len(values):
        yield start, len(values)


def can_pack(producer: Any) -> bool:
    """Return whether this version of the client supports `send_packed`."""
    from kafka.producer.record_accumulator import RecordAccumulator
    from kafka.record.memory_records import MemoryRecordsBuilder

    accumulator = getattr(producer, "_accumulator", None)
    manager = getattr(producer, "_transaction_manager", None)
    try:
        inner = MemoryRecordsBuilder(2, 0, 1024)._builder
    except (TypeError, AttributeError):
        return False
    return (
        isinstance(accumulator, RecordAccumulator)
        and all(hasattr(accumulator, name) for name in ("_batches", "_tp_lock", "_incomplete", "config", "_closed"))
        and all(hasattr(inner, name) for name in ("_buffer", "_num_records", "_last_offset", "_first_timestamp"))
        and hasattr(manager, "maybe_add_partition_to_transaction")
        and hasattr(producer, "_sender")
    )


def send_packed(producer: Any, tp: Any, packed: bytes, n: int, timestamp: int) -> None:
    """Queue a batch of `n` encoded records for a partition in the open transaction."""
    from kafka.errors import IllegalStateError
    from kafka.producer.producer_batch import ProducerBatch
    from kafka.record.memory_records import MemoryRecordsBuilder

    accumulator = producer._accumulator
    producer.partitions_for(tp.topic)  # which makes it learn, once, who leads them
    producer._transaction_manager.maybe_add_partition_to_transaction(tp)
    size = _HEADER + len(packed)
    builder = MemoryRecordsBuilder(2, accumulator.config["compression_attrs"], size)
    inner = builder._builder
    inner._buffer += packed
    inner._num_records, inner._last_offset = n, n - 1
    inner._first_timestamp = inner._max_timestamp = timestamp
    builder._next_offset = n
    batch = ProducerBatch(tp, builder)
    batch.max_record_size = size
    with accumulator._tp_lock(tp):
        if accumulator._closed:
            raise IllegalStateError("the producer is closed")
        accumulator._batches[tp].append(batch)
        accumulator._incomplete.add(batch)
    producer._sender.wakeup()
