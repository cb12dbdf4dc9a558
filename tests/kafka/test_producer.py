"""Batches of records that are queued at once: all arrive, in the transaction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.kafka.producer import queue, split_by_size

pytest.importorskip("kafka")

KEYS = st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=60, max_size=70))
RECORDS = st.lists(st.tuples(KEYS, st.binary(max_size=300)), min_size=1, max_size=30)


def batch_size(records):
    from kafka.record.memory_records import MemoryRecordsBuilder

    builder = MemoryRecordsBuilder(2, 0, 1 << 20)
    for key, value in records:
        builder.append(1_700_000_000_000, key, value)
    return builder.size_in_bytes()


@given(RECORDS, st.integers(62, 2000))
def test_stretches_cover_all_in_order_and_are_small_enough(records, most):
    keys, values = zip(*records, strict=True)
    cuts = list(split_by_size(keys, values, most))
    assert [i for start, end in cuts for i in range(start, end)] == list(range(len(records)))
    for start, end in cuts:
        assert end - start == 1 or batch_size(records[start:end]) <= most


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_the_producer_sends_them_in_its_transaction(broker, topic, compression):
    from kafka import KafkaProducer, TopicPartition

    from tests.kafka.conftest import read

    name = topic("queued", 1)
    producer = KafkaProducer(bootstrap_servers=broker, transactional_id=name, compression_type=compression)
    producer.init_transactions()
    keys = [b"a", None, b"c"] * 700
    values = [b'{"n":%d}' % i for i in range(2100)]
    for ending in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        queue(producer, (TopicPartition(name, 0), keys, values, 1234))
        queue(producer, (TopicPartition(name, 0), keys, values, 1234))
        ending()
    producer.close()
    got = read(broker, name)
    assert [record.value for record in got] == values * 2
    assert [record.key for record in got] == keys * 2
    assert {record.timestamp for record in got} == {1234}
