"""Packed batches equal those of the client: its own reader can parse them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.kafka.packing import can_pack, pack, send_packed, stretches

pytest.importorskip("kafka")

KEYS = st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=60, max_size=70))
RECORDS = st.lists(st.tuples(KEYS, st.binary(max_size=300)), min_size=1, max_size=30)


def client_batch(records, timestamp):
    from kafka.record.memory_records import MemoryRecordsBuilder

    builder = MemoryRecordsBuilder(2, 0, 1 << 20)
    for key, value in records:
        builder.append(timestamp, key, value)
    return bytes(builder._builder._buffer[61:])


@given(RECORDS)
def test_the_bytes_are_those_of_the_client(records):
    keys, values = zip(*records, strict=True)
    assert pack(keys, values) == client_batch(records, 1_700_000_000_000)


def test_so_are_those_of_long_batches_and_values():
    records = [(b"k" * (i % 200), b"v" * (i % 131)) for i in range(20_000)] + [(None, b"w" * 70_000)]
    keys, values = zip(*records, strict=True)
    from kafka.record.default_records import DefaultRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecordsBuilder

    builder = MemoryRecordsBuilder(2, 0, 1 << 30)
    for key, value in records:
        builder.append(5, key, value)
    size = DefaultRecordBatchBuilder.header_size_in_bytes()
    assert pack(keys, values) == bytes(builder._builder._buffer[size:])


@given(RECORDS, st.integers(62, 2000))
def test_stretches_cover_all_in_order_and_are_small_enough(records, most):
    keys, values = zip(*records, strict=True)
    cuts = list(stretches(keys, values, most))
    assert [i for start, end in cuts for i in range(start, end)] == list(range(len(records)))
    for start, end in cuts:
        assert end - start == 1 or len(pack(keys[start:end], values[start:end])) + 61 <= most


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_the_producer_sends_them_in_its_transaction(broker, topic, compression):
    from kafka import KafkaProducer, TopicPartition

    from tests.kafka.conftest import read

    name = topic("packed", 1)
    producer = KafkaProducer(bootstrap_servers=broker, transactional_id=name, compression_type=compression)
    assert can_pack(producer), "this version of kafka-python is not known: look at connectors/kafka/packing.py"
    producer.init_transactions()
    keys = [b"a", None, b"c"] * 700
    values = [b'{"n":%d}' % i for i in range(2100)]
    for ending in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        send_packed(producer, TopicPartition(name, 0), pack(keys, values), len(keys), 1234)
        send_packed(producer, TopicPartition(name, 0), pack(keys, values), len(keys), 1234)
        ending()
    producer.close()
    got = read(broker, name)
    assert [record.value for record in got] == values * 2
    assert [record.key for record in got] == keys * 2
    assert {record.timestamp for record in got} == {1234}
