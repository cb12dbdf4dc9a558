"""The source with a Kafka broker."""

from __future__ import annotations

import contextlib
import json
import logging
import random
import time
import tracemalloc
from types import SimpleNamespace

import pytest

from connectors import ConnectorError, open_source
from connectors.errors import UnreachableError
from connectors.kafka import KafkaSource
from connectors.kafka.reader import Reader
from tests.commands import wait_for
from tests.errors import raises
from tests.kafka.broker import admin
from tests.kafka.conftest import fill, recreate, starter


def opened(broker, topic, **options):
    return contextlib.closing(KafkaSource(servers=broker, topic=topic, **options))


def events(source):
    """Return all events of a source that ends, and its rejected records.

    An event has partition, offset, features and label.
    """
    found, rejected = [], []
    for batch in source:
        found += zip(_places(batch), batch.rows(), batch.labels, strict=True)
        rejected += batch.rejected
    return found, rejected


def taken(batches, n, seconds=60.0):
    """Return the next events of a live source until there are n of them."""
    deadline, found = time.monotonic() + seconds, []
    while len(found) < n and time.monotonic() < deadline:
        found += next(batches).rows()
    return found


def numbered(n, partitions=3):
    return [(i % partitions, b"k%d" % i, b'{"x":%d,"y":"%d"}' % (i, i % 2), 1000 + i) for i in range(n)]


def test_events_with_keys_times_and_headers(broker, topic):
    from kafka import KafkaProducer

    name = topic("events", 1)
    producer = KafkaProducer(bootstrap_servers=broker)
    producer.send(name, b'{"x":1,"y":"UP"}', key="né".encode(), headers=[("h", b"1")], timestamp_ms=5)
    producer.send(name, b'{"x":2}', key=b"\xff", timestamp_ms=6)
    producer.send(name, b'{"x":3}', timestamp_ms=7)
    producer.close()
    with contextlib.closing(open_source(f"kafka://{broker}/{name}?at_end=stop", label="y")) as source:
        (batch,) = [batch for batch in source if len(batch)]
        assert batch.rows() == [{"x": 1}, {"x": 2}, {"x": 3}]
        assert batch.labels == ["UP", None, None]
        assert batch.keys == ["né", b"\xff", None]
        assert batch.times == [5, 6, 7]
        assert batch.headers[0] == [("h", b"1")]
        assert batch.origins[1] == {"topic": name, "partition": 0, "offset": 1}
        assert batch.raw[2] == '{"x":3}'
        assert source.position == {name: {"0": 3}}
        assert source.lag == {0: 0}
        assert source.fraction == 1.0


def test_a_backlog_on_partitions_at_random_ends_in_order(broker, topic):
    name, dice, n = topic("events"), random.Random(1), 15_000
    at_once = [dice.randrange(3) for _ in range(n)]
    fill(broker, name, [(p, None, b'{"x":%d}' % t, t) for t, p in enumerate(at_once)])
    at, seen = time.monotonic(), 0
    with opened(broker, name, at_end="stop", max_partition_fetch_bytes=1 << 18) as source:
        for batch in source:
            assert batch.times == list(range(seen, seen + len(batch)))
            seen += len(batch)
            at = time.monotonic() if len(batch) else at
            assert time.monotonic() - at < 60, f"it hangs after {seen} events"
    assert seen == n


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_records_that_wait_for_others_take_bounded_memory(broker, topic, compression):
    name, most, n = topic("events"), 400_000, 300
    times = [[2 * t, 2 * t + 1, 2 * n + t] for t in range(n)]  # all records of partition 2 follow the others
    rows = [(p, None, b'{"x":"%s"}' % (b"%d" % t * 4_800), t) for each in times for p, t in enumerate(each)]
    fill(broker, name, rows, compression_type=compression)
    found = []
    with opened(broker, name, at_end="stop", max_held_bytes=most) as source:  # so that imports do not count
        next(iter(source))
    tracemalloc.start()
    try:
        with opened(broker, name, at_end="stop", max_held_bytes=most) as source:
            for batch in source:
                found += batch.times
                assert sum(len(value) for value in batch.raw) <= most / 8
            _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == list(range(3 * n))
    # The buffers of the client, which vary, are a few times the limit, whatever the size of the topic.
    assert sum(len(value) for *_, value, _ in rows) > 25 * most
    assert peak < 8 * most


def test_a_long_lag_without_events_is_reported_and_counted(broker, topic, monkeypatch, caplog):
    from kafka import KafkaProducer

    monkeypatch.setattr("connectors.kafka.source.DRY_S", 1.0)
    name = topic("events", 2)
    fill(broker, name, [(1, None, b'{"x":1}', 1)])
    producer = KafkaProducer(bootstrap_servers=broker, transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(name, b'{"x":2}', partition=0, timestamp_ms=2)
    producer.flush()
    deadline, found = time.monotonic() + 120, []
    with caplog.at_level(logging.WARNING), opened(broker, name) as source:
        batches = iter(source)
        while not source.stalls and time.monotonic() < deadline:
            found += next(batches).times
        assert found == [1]
        for _ in range(30):
            next(batches)
        assert source.stalls == 1
        (said,) = [record.getMessage() for record in caplog.records if "no event for 1 s" in record.getMessage()]
        assert "and 1 to come: waiting for partition 0, at offset 0 of 1; an open transaction there" in said
        producer.commit_transaction()
        producer.close()
        while len(found) < 2 and time.monotonic() < deadline:
            found += next(batches).times
        assert found == [1, 2]


@pytest.fixture
def later(monkeypatch):
    """The seconds that the clock of sources is ahead, in a list."""
    ahead = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0], sleep=time.sleep)
    monkeypatch.setattr("connectors.kafka.source.time", clock)
    return ahead


def test_slow_processing_is_not_a_stall(broker, topic, later):
    """An example is a run that waits for brokers, first or between two events."""
    name = topic("events", 1)
    fill(broker, name, numbered(100, 1))
    with opened(broker, name, max_poll_records=10, batch_size=10, at_end="stop") as source:
        later[0] += 1000.0
        n = 0
        for batch in source:
            n += len(batch)
            later[0] += 1000.0
        assert (n, source.stalls) == (100, 0)


def test_brokers_that_send_no_records_are_unreachable(broker, topic, later, monkeypatch):
    name = topic("events", 1)
    fill(broker, name, numbered(100, 1))

    def silent(reader, seconds):
        later[0] += 1.0

    monkeypatch.setattr(Reader, "poll", silent)
    with opened(broker, name, at_end="stop", broker_timeout=30) as source, raises(UnreachableError):
        list(source)
    assert 30.0 <= later[0] < 60.0


def test_a_process_that_was_suspended_does_not_blame_the_brokers(broker, topic, later, monkeypatch):
    name, suspended = topic("events", 1), [1000.0, 1000.0]
    fill(broker, name, numbered(100, 1))
    with opened(broker, name, at_end="stop", broker_timeout=30) as source:
        poll = Reader.poll

        def interrupted(reader, seconds):
            if suspended:
                later[0] += suspended.pop()
            else:
                poll(reader, seconds)

        monkeypatch.setattr(Reader, "poll", interrupted)
        assert (sum(map(len, source)), source.stalls) == (100, 0)


def test_resuming_at_any_position_keeps_the_order(broker, topic):
    name = topic("events")
    fill(broker, name, [(p, None, b'{"x":1}', (t * 7919) % 1000) for t in range(300) for p in range(3)])
    with opened(broker, name, at_end="stop", batch_size=50) as source:
        start, batches = source.position, list(source)
    whole = [place for batch in batches for place in _places(batch)]
    for k in (0, 3, 9):
        with opened(broker, name, at_end="stop", batch_size=64) as source:
            source.seek(batches[k].position)
            done = sum(map(len, batches[: k + 1]))
            assert [place for batch in source for place in _places(batch)] == whole[done:]
    with opened(broker, name, at_end="stop") as source:
        source.seek(start)
        assert [place for batch in source for place in _places(batch)] == whole


def _places(batch):
    return list(zip(batch.origins.columns["partition"], batch.origins.columns["offset"], strict=True))


def test_the_unit_of_times_is_part_of_the_position(broker, topic):
    name = topic("timed", 1)
    moments = [1_700_000_000.5, 1_700_000_001, 1500, 1_700_000_002_000]
    fill(broker, name, [(0, None, b'{"x":1,"t":%s}' % str(t).encode(), i) for i, t in enumerate(moments)])
    url = f"kafka://{broker}/{name}?at_end=stop&batch_size=2&time=t"
    with contextlib.closing(open_source(url)) as source:
        first, *_ = [batch for batch in source if len(batch)]
        assert list(first.times) == [1_700_000_000_500, 1_700_000_001_000]
    with contextlib.closing(open_source(url)) as source:
        source.seek(json.loads(json.dumps(first.position)))
        rest = [batch for batch in source if len(batch) or batch.rejected]
    assert [int(time) for batch in rest for time in batch.times] == [1_500_000]
    assert ["time_unit" in bad.reason for batch in rest for bad in batch.rejected] == [True]


def test_the_number_format_is_part_of_the_position(broker, topic, caplog):
    name, options = topic("spelled", 1), {"at_end": "stop", "format": "csv", "names": "x,z", "delimiter": ";"}
    fill(broker, name, [(0, None, b"%d,5;1" % i, 1_000 + i) for i in range(300)])
    with opened(broker, name, **options) as source:
        batches = list(source)
        assert len(source.notices) == 1
    assert batches[-1].rows()[-1] == {"x": 299.5, "z": 1.0}
    assert "--set decimal=," in caplog.text
    caplog.clear()
    position = json.loads(json.dumps(batches[-1].position)) | {name: {"0": 200}}
    with opened(broker, name, **options) as source:
        source.seek(position)
        assert next(batch for batch in source if len(batch)).rows()[0] == {"x": 200.5, "z": 1.0}
    assert "decimal=" not in caplog.text


def test_lag_and_new_partitions_are_noticed_while_records_are_ready(broker, topic, monkeypatch):
    monkeypatch.setattr("connectors.kafka.source.QUERY_S", 0.1)
    monkeypatch.setattr("connectors.kafka.source.CHECK_S", 0.1)
    name = topic("events", 1)
    fill(broker, name, numbered(2000, 1))
    with opened(broker, name, batch_size=10) as source:
        batches = iter(source)
        taken = sum(len(next(batches)) for _ in range(2))
        fill(broker, name, numbered(1000, 1))
        with admin(broker) as client:
            client.create_partitions({name: 2})
        fill(broker, name, [(1, None, b"{}", 1) for _ in range(500)])
        deadline = time.monotonic() + 60
        while sum(source.lag.values()) != 3500 - taken and time.monotonic() < deadline:
            time.sleep(0.05)  # a slow model
            taken += len(next(batches))
        assert taken < 1900  # records of the first 2000 were available all the time
        assert source.partitions == [0, 1]
        assert sum(source.lag.values()) == 3500 - taken


def test_a_codec_that_changes_within_a_topic(broker, topic):
    name = topic("events", 1)
    for start, codec in enumerate((None, "gzip", "snappy", "lz4", "zstd", None)):
        fill(broker, name, [(0, None, b'{"x":%d}' % (20 * start + i), i) for i in range(20)], compression_type=codec)
    with opened(broker, name, at_end="stop") as source:
        found, rejected = events(source)
    assert rejected == []
    assert [row["x"] for _, row, _ in found] == list(range(120))


def test_a_codec_without_its_library_names_the_extra(broker, topic, monkeypatch):
    name = topic("events", 1)
    fill(broker, name, numbered(20, 1), compression_type="zstd")
    monkeypatch.setattr("kafka.codec.has_zstd", lambda: False)
    with opened(broker, name, at_end="stop") as source, raises(ConnectorError, named="zstd") as caught:
        events(source)
    assert "streamsvm[kafka]" in str(caught.value)


def test_poison_between_good_events(broker, topic):
    name = topic("events", 1)
    good = b'{"x":1,"y":1}'
    values = [good, None, good, b"{oops", b"\xff\xfe", good]
    values += [b'{"x":"%s"}' % (b"a" * 5000), b'{"x":[1],"x.length":1}', b'{"y":{}}', good]
    fill(broker, name, [(0, b"k", value, i) for i, value in enumerate(values)])
    with opened(broker, name, label="y", at_end="stop", max_value_bytes=4000) as source:
        found, rejected = events(source)
    assert [place for place, *_ in found] == [(0, 0), (0, 2), (0, 5), (0, 9)]
    reasons = {one.origin["offset"]: one.reason for one in rejected}
    assert sorted(reasons) == [1, 3, 4, 6, 7, 8]
    assert "tombstone" in reasons[1]
    assert reasons[4] == "not valid utf-8"
    assert "5,008 bytes, longer than max_value_bytes=4,000" in reasons[6]
    raw = {one.origin["offset"]: one.raw for one in rejected}
    assert raw[1] is None
    assert raw[3] == "{oops"
    assert raw[4] == "base64://4="
    assert len(raw[6]) == 1000
    assert all(one.origin["topic"] == name for one in rejected)


def test_an_empty_topic_ends_at_once_and_a_live_one_is_waited_for(broker, topic):
    name = topic("empty")
    with opened(broker, name, at_end="stop") as source:
        assert events(source) == ([], [])
    with opened(broker, name) as source:
        batches = iter(source)
        assert len(next(batches)) == 0
        fill(broker, name, numbered(5))
        assert len(taken(batches, 5)) == 5


def test_aborted_events_are_skipped_and_open_transactions_do_not_block(broker, topic):
    from kafka import KafkaProducer

    name = topic("events", 2)
    producer = KafkaProducer(bootstrap_servers=broker, transactional_id=name)
    producer.init_transactions()
    for ending in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.send(name, b'{"x":"%s"}' % ending.__name__.encode(), partition=0)
        ending()
    producer.begin_transaction()
    producer.send(name, b'{"x":"open"}', partition=0)
    producer.flush()
    fill(broker, name, [(1, None, b'{"x":"plain"}', int(time.time() * 1000) + 60_000)])
    with opened(broker, name) as source:
        assert taken(iter(source), 2) == [{"x": "commit_transaction"}, {"x": "plain"}]
    with opened(broker, name, at_end="stop") as source:
        assert len(events(source)[0]) == 2
    producer.abort_transaction()
    producer.close()


def test_a_missing_topic_is_refused_or_waited_for(broker, caplog):
    name = f"later-{time.time_ns()}"
    with raises(ConnectorError, reason="no topic", option="absent", named=name):
        KafkaSource(servers=broker, topic=name)
    with caplog.at_level(logging.WARNING), opened(broker, name, absent="wait", missing="-") as source:
        batches = iter(source)
        assert len(next(batches)) == 0
        assert "waiting for it" in caplog.text
        starter.make_topics(broker, name)
        fill(broker, name, numbered(10))
        assert len(taken(batches, 10)) == 10
        assert source.partitions == [0, 1, 2]


def test_offsets_that_retention_removed(broker, topic):
    from kafka import TopicPartition

    name = topic("events", 1)
    fill(broker, name, numbered(20, 1))
    with admin(broker) as client:
        client.delete_records({TopicPartition(name, 0): 12})
    with opened(broker, name) as source, raises(ConnectorError, reason="removed", option="gap", named="5 to 11"):
        source.seek({name: {"0": 5}})
    with opened(broker, name, gap="skip", at_end="stop") as source:
        source.seek({name: {"0": 5}})
        assert [place for place, *_ in events(source)[0]] == [(0, offset) for offset in range(12, 20)]
    with opened(broker, name) as source, raises(ConnectorError, reason="recreated", named="offset 20"):
        source.seek({name: {"0": 21}})
    with opened(broker, name) as source, raises(ConnectorError, reason="position", named="other"):
        source.seek({"other": {"0": 1}})
    with opened(broker, name) as source, raises(ConnectorError, reason="position", named="partition 7"):
        source.seek({name: {"7": 1}})


def test_positions_are_committed_to_the_group_for_others_to_see(broker, topic):
    from kafka.errors import KafkaError

    def told(client, group):
        with contextlib.suppress(KafkaError):  # while the broker creates its table of groups
            return client.list_group_offsets({group: None})[group]

    name = topic("events", 1)
    fill(broker, name, numbered(9, 1))
    with opened(broker, name, at_end="stop", group_id=f"{name}-lag") as source:
        events(source)
        source.acknowledge(source.position)
        with admin(broker) as client:
            seen = wait_for(lambda: told(client, f"{name}-lag"), "the offsets")
    assert [found.offset for found in seen.values()] == [9]
    with opened(broker, name, at_end="stop", group_id=f"{name}-lag") as source:  # the group does not set the position
        assert len(events(source)[0]) == 9
    with opened(broker, name, at_end="stop", group_id="") as source:
        source.acknowledge(source.position)  # no offset


def test_new_partitions_are_read_from_their_beginning(broker, topic, monkeypatch):
    monkeypatch.setattr("connectors.kafka.source.CHECK_S", 0.2)
    name = topic("events", 1)
    fill(broker, name, numbered(3, 1))
    with opened(broker, name, metadata_max_age_ms=500) as source:
        batches = iter(source)
        assert sum(len(next(batches)) for _ in range(3)) == 3
        with admin(broker) as client:
            client.create_partitions({name: 2})
        fill(broker, name, [(1, None, b'{"x":1}', 1)])
        assert len(taken(batches, 1)) == 1
        assert source.position == {name: {"0": 3, "1": 1}}


def test_a_topic_that_is_deleted_stops_the_run(broker, topic, monkeypatch):
    monkeypatch.setattr("connectors.kafka.source.QUERY_S", 0.2)
    name = topic("events")
    fill(broker, name, [(0, b"k", b'{"a":1}', 1)])
    with contextlib.closing(open_source(f"kafka://{broker}/{name}")) as source:
        batches = iter(source)
        while not len(next(batches)):
            pass
        with admin(broker) as client:
            client.delete_topics([name])
        with raises(ConnectorError, reason="deleted", named=name):
            taken(batches, 1)


def made_anew(broker, name, rows):
    recreate(broker, name)
    fill(broker, name, rows)


def test_a_recreated_topic_is_not_continued(broker, topic):
    name = topic("events")
    fill(broker, name, numbered(30))
    with opened(broker, name, at_end="stop") as source:
        *_, last = source
    made_anew(broker, name, numbered(60))
    with opened(broker, name) as source, raises(ConnectorError, reason="recreated", option="recreated"):
        source.seek(last.position)
    with opened(broker, name, at_end="stop", recreated="accept") as source:
        source.seek(last.position)
        assert len(events(source)[0]) == 30


def test_a_recreated_topic_stops_a_live_run(broker, topic, monkeypatch):
    monkeypatch.setattr("connectors.kafka.source.QUERY_S", 0.2)
    name = topic("events")
    fill(broker, name, numbered(30))
    with opened(broker, name) as source:
        batches = iter(source)
        while sum(source.position[name].values()) < 30:
            next(batches)
        made_anew(broker, name, numbered(60))
        with pytest.raises(ConnectorError) as caught:
            taken(batches, 61)
        assert caught.value.reason in ("recreated", "deleted")


def test_an_unreachable_broker_is_reported_in_bounded_time():
    port = starter.free_ports(1)[0]
    with raises(UnreachableError, reason="no answer", named=f"127.0.0.1:{port}/t: no broker responded within 1 s"):
        KafkaSource(servers=f"127.0.0.1:{port}", topic="t", bootstrap_timeout_ms=1000)
