"""Batches of records that are queued at once: all arrive, in the transaction."""

from __future__ import annotations

import pkgutil
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import connectors.kafka.producer
from connectors.kafka.clients import Brokers
from connectors.kafka.producer import TransactionalProducer, can_queue, queue, split_by_size

pytest.importorskip("kafka")

KEYS = st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=60, max_size=70))
RECORDS = st.lists(st.tuples(KEYS, st.binary(max_size=300)), min_size=1, max_size=30)


def batch_size(records):
    from kafka.record.memory_records import MemoryRecordsBuilder

    builder = MemoryRecordsBuilder(2, 0, 1 << 20)
    for key, value in records:
        builder.append(1_700_000_000_000, key, value)
    return builder.size_in_bytes()


USED = (
    *("record_accumulator:RecordAccumulator." + name for name in ("_batches", "_tp_lock", "_incomplete", "_closed")),
    *("record_accumulator:RecordAccumulator." + name for name in ("has_incomplete", "config")),
    *("producer_batch:ProducerBatch", "producer_batch:ProducerBatch.produce_future", "sender:Sender.wakeup"),
    *("future:FutureProduceResult.wait", "future:FutureProduceResult.is_done"),
    "transaction_manager:TransactionManager.maybe_add_partition_to_transaction",
)
"""What `queue` uses of the client, in modules of `kafka.producer`."""


class Removed:
    """Attribute that a version of the client lacks."""

    def __get__(self, *_: object) -> None:
        raise AttributeError("removed")

    def __set__(self, *_: object) -> None:
        pass


def test_a_client_without_an_attribute_takes_records_one_by_one_and_this_is_logged_once(monkeypatch, caplog):
    from kafka.producer.record_accumulator import RecordAccumulator
    from kafka.producer.sender import Sender
    from kafka.producer.transaction_manager import TransactionManager

    parts = {"_accumulator": RecordAccumulator(), "_transaction_manager": TransactionManager, "_sender": Sender}
    assert can_queue(SimpleNamespace(**parts))
    for name in parts:
        assert not can_queue(SimpleNamespace(**{other: part for other, part in parts.items() if other != name}))
    for path in USED:
        owner, _, name = f"kafka.producer.{path}".replace(":", ".").rpartition(".")
        with monkeypatch.context() as patched:
            patched.setattr(pkgutil.resolve_name(owner), name, Removed(), raising=False)
            caplog.clear()
            assert not can_queue(SimpleNamespace(**parts)), path
    can_queue(SimpleNamespace())
    before = len(caplog.records)
    assert not can_queue(SimpleNamespace())
    assert len(caplog.records) == before


@given(RECORDS, st.integers(62, 2000))
def test_stretches_cover_all_in_order_and_are_small_enough(records, most):
    keys, values = zip(*records, strict=True)
    cuts = list(split_by_size(keys, values, most))
    assert [i for start, end in cuts for i in range(start, end)] == list(range(len(records)))
    for start, end in cuts:
        assert end - start == 1 or batch_size(records[start:end]) <= most


def test_records_one_by_one_are_a_transaction_too(broker, topic, monkeypatch):
    from kafka import TopicPartition

    from tests.kafka.conftest import read

    monkeypatch.setattr(connectors.kafka.producer, "can_queue", lambda producer: False)
    name = topic("single", 1)
    producer = TransactionalProducer(Brokers(name, [broker], {}), name)
    producer.begin()
    producer.send((TopicPartition(name, 0), [b"a", None], [b"1", b"2"], 1234))
    producer.commit({}, "")
    producer.leave().result()
    assert [(record.key, record.value, record.timestamp) for record in read(broker, name)] == [
        (b"a", b"1", 1234),
        (None, b"2", 1234),
    ]


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_the_producer_sends_them_in_its_transaction(broker, topic, compression):
    from kafka import KafkaProducer, TopicPartition

    from tests.kafka.conftest import read

    name = topic("queued", 1)
    producer = KafkaProducer(bootstrap_servers=broker, transactional_id=name, compression_type=compression)
    assert can_queue(producer), "this version of kafka-python is not known: look at connectors/kafka/producer.py"
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
