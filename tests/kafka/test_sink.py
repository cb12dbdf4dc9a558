"""The sink with a Kafka broker: transactions, the mark, and competing writers."""

from __future__ import annotations

import contextlib
import json
import time
from types import SimpleNamespace
from unittest import mock

import pytest

from connectors import ConnectorError, open_sink
from connectors.kafka import KafkaSource, clients, transactions
from connectors.kafka.clients import largest_record
from tests.commands import wait_for
from tests.errors import raises
from tests.kafka.broker import admin
from tests.kafka.conftest import fill, read, recreate

kafka_errors = pytest.importorskip("kafka.errors")


def table(partition, offsets, **more):
    n = len(offsets)
    given = {"partition": [partition] * n, "offset": list(offsets), "key": ["k"] * n}
    return given | {"prediction": ["UP"] * n, "score": [0.5] * n, "label": [None] * n} | more


def rows(broker, topic):
    return [json.loads(record.value) for record in read(broker, topic)]


@pytest.fixture
def source(broker, topic):
    name = topic("in", 3)
    fill(broker, name, [(p, None, b"{}", 1) for p in range(3) for _ in range(50)])
    with contextlib.closing(KafkaSource(servers=broker, topic=name)) as opened:
        yield opened


def test_flushed_rows_are_committed(broker, topic):
    name = topic("out", 2)
    with contextlib.closing(open_sink(f"kafka://{broker}/{name}")) as sink:
        assert not sink.can_rewind
        sink.write(table(0, [0, 1], label=["UP", None]))
        sink.write(table(1, [7]))
        sink.write(table(2, [9], key=[b"\xff"]))
        assert rows(broker, name) == []
        sink.flush()
        got = read(broker, name)
    assert [(record.partition, record.key) for record in got] == [(0, b"k"), (0, b"k"), (0, b"\xff"), (1, b"k")]
    first = json.loads(got[0].value)
    assert first == {"partition": 0, "offset": 0, "prediction": "UP", "score": 0.5, "label": "UP"}
    assert json.loads(got[1].value) == first | {"offset": 1, "label": None}


def test_the_mark_keeps_rows_from_coming_twice(broker, topic, source):
    name = topic("out")
    with contextlib.closing(open_sink(f"kafka://{broker}/{name}", source=source)) as sink:
        sink.flush()
        begin = sink.position
        assert begin == {"mark": {"0": 0, "1": 0, "2": 0}}
        sink.write(table(0, range(3)))
        sink.flush()
        kept = sink.position
        sink.write(table(0, range(3, 6)))
        sink.write(table(2, range(4)))
        sink.flush()
    with contextlib.closing(open_sink(f"kafka://{broker}/{name}", source=source, resume=True)) as sink:
        sink.rewind(kept)
        assert sink.position == {"mark": {"0": 6, "1": 0, "2": 4}}
        sink.write(table(0, range(3, 8)))
        sink.write(table(2, range(2)))
        sink.write(table(2, range(2, 5)))
        sink.write(table(1, range(2)))
        sink.flush()
        assert sink.position == {"mark": {"0": 8, "1": 2, "2": 5}}
    found = [(row["partition"], row["offset"]) for row in rows(broker, name)]
    assert sorted(found) == [(0, o) for o in range(8)] + [(1, 0), (1, 1)] + [(2, o) for o in range(5)]


def test_a_checkpoint_ahead_of_the_mark_stops_the_run(broker, topic, source):
    name = topic("out")
    ahead = {"mark": {"0": 5, "1": 0, "2": 0}}
    with (
        contextlib.closing(open_sink(f"kafka://{broker}/{name}", source=source, resume=True)) as sink,
        raises(ConnectorError, reason="behind", option="mark", named="offset 5 of partition 0"),
    ):
        sink.rewind(ahead)
    url = f"kafka://{broker}/{name}?mark=forget"
    with contextlib.closing(open_sink(url, source=source, resume=True)) as sink:
        sink.rewind(ahead)
        sink.write(table(0, range(7)))
        sink.flush()
    assert [row["offset"] for row in rows(broker, name)] == [5, 6]


def bad(offsets):
    n = len(offsets)
    return {"reason": ["bad"] * n, "raw": ["{"] * n, "partition": [0] * n, "offset": list(offsets)}


def test_dead_letters_are_written_once(broker, topic, source):
    name, dead = topic("out"), topic("dead", 1)

    @contextlib.contextmanager
    def sinks(**options):
        with (
            contextlib.closing(open_sink(f"kafka://{broker}/{name}", source=source, **options)) as sink,
            contextlib.closing(open_sink(f"kafka://{broker}/{dead}", source=source, beside=sink)) as other,
        ):
            yield sink, other

    with sinks() as (sink, other):
        sink.flush()
        begin = sink.position
        sink.write(table(0, [0]))
        other.write(bad([4, 3, 1]))  # tombstones before malformed records
        sink.flush()
        assert sink.position == {"mark": {"0": 5, "1": 0, "2": 0}}
    with sinks(resume=True) as (sink, other):
        sink.rewind(begin)
        sink.write(table(0, [5, 6]))  # all new, but not the related records
        other.write(bad([4, 3, 7]))
        sink.flush()
    assert [row["offset"] for row in rows(broker, dead)] == [4, 3, 1, 7]


def test_a_dead_letter_that_is_too_large_is_written_without_its_value(broker, topic):
    name = topic("dead", 1)
    with contextlib.closing(open_sink(f"kafka://{broker}/{name}")) as sink:
        sink.write({"reason": ["bad"], "raw": ["ü" * 900_000], "partition": [0], "offset": [3]})
        sink.flush()
        with pytest.raises(ConnectorError):  # not a dead letter, and there is no dead-letter output
            sink.write({"partition": [0], "offset": [4], "label": ["ü" * 600_000]})
    (row,) = rows(broker, name)
    assert row == {
        **{"reason": "bad", "raw": None, "partition": 0, "offset": 3},
        "raw_too_large": "900,000 characters",
    }


def test_records_fit_the_limit_of_the_topic(broker, topic, source):
    name, rejected = topic("out", 1, **{"max.message.bytes": "3000"}), []
    with contextlib.closing(open_sink(f"kafka://{broker}/{name}", source=source)) as sink:
        sink.reject = lambda _, text: rejected.append(json.loads(text)["offset"])
        sink.flush()
        begin = sink.position
        sink.write(table(0, range(100)))
        sink.write(table(0, [100], key=["k" * 5000]))
        sink.write(table(0, [101], label=["ü" * 5000]))
        sink.flush()
        assert sink.position["mark"]["0"] == 102
    with contextlib.closing(open_sink(f"kafka://{broker}/{name}", source=source, resume=True)) as sink:
        sink.reject = lambda _, text: rejected.append(json.loads(text)["offset"])
        sink.rewind(begin)
        sink.write(table(0, [100, 101, 102], label=["ü" * 5000, "UP", "UP"]))
        sink.flush()
    assert [json.loads(record.value)["offset"] for record in read(broker, name)] == [*range(100), 102]
    assert rejected == [100, 101, 100]  # again, because a dead-letter file was rewound


@pytest.mark.parametrize("more", [0, 5])
def test_a_transaction_that_took_too_long_is_repeated(broker, topic, source, more):
    name = topic("out", 1)
    url = f"kafka://{broker}/{name}?transaction_timeout_ms=1000&commit_interval=60"
    with contextlib.closing(open_sink(url, source=source)) as sink:
        sink.write(table(0, range(3)))
        sink.flush()
        sink.write(table(0, range(3, 6), label=["long" * 50_000] * 3))  # large enough to be sent at once
        time.sleep(3)  # the broker aborts it
        for offset in range(6, 6 + more):
            sink.write(table(0, [offset]))
            sink.advance()
            time.sleep(0.1)
        sink.flush()
        sink.write(table(0, [20]))
        sink.flush()
    assert [row["offset"] for row in rows(broker, name)] == [*range(6 + more), 20]


def test_a_request_is_not_lost_where_its_broker_is_away(broker, topic, source, monkeypatch):
    """An example is a transaction whose coordinator crashed, without an error."""
    from kafka.errors import KafkaConnectionError
    from kafka.net.compat import KafkaNetClient

    name, away, is_ready = topic("out", 1), [True] * 3, KafkaNetClient.await_ready

    def await_ready(self, *args, **options):
        if away:
            away.pop()
            raise KafkaConnectionError("not ready")
        return is_ready(self, *args, **options)

    with contextlib.closing(open_sink(f"kafka://{broker}/{name}?commit_interval=60", source=source)) as sink:
        sink.write(table(0, range(3)))
        sink.flush()
        monkeypatch.setattr(KafkaNetClient, "await_ready", await_ready)
        monkeypatch.setattr(sink._transactions, "_repair", pytest.fail)
        sink.write(table(0, range(3, 6)))
        sink.flush()
    assert not away
    assert [row["offset"] for row in rows(broker, name)] == [*range(6)]


def takes_at_most(broker, name, limit):
    from kafka.admin import ConfigResource

    with admin(broker) as client:
        client.alter_configs([ConfigResource("TOPIC", name, {"max.message.bytes": str(limit)})])
        while (now := largest_record(client, name)) is None or now >= limit:
            time.sleep(0.05)


@pytest.mark.parametrize("which", ["in", "out"])
def test_a_topic_that_is_deleted_is_named(broker, topic, source, monkeypatch, which):
    monkeypatch.setattr(transactions, "QUERY_S", 0.2)
    monkeypatch.setattr(clients, "SURE_S", 0.2)
    name = topic("out", 1)
    gone = source.topic if which == "in" else name
    with contextlib.closing(open_sink(f"kafka://{broker}/{name}", source=source)) as sink:
        sink.write(table(0, range(3)))
        sink.flush()
        with admin(broker) as client:
            client.delete_topics([gone])
        with raises(ConnectorError, reason="deleted", named=gone):
            while True:  # brokers take a moment to delete a topic
                sink.write(table(0, [3]))
                sink.flush()
                time.sleep(0.05)


def test_a_topic_that_is_recreated_is_reported_once(broker, topic, source, monkeypatch, caplog):
    monkeypatch.setattr(transactions, "QUERY_S", 0.05)
    name = topic("out", 2)
    said: list[str] = []
    with contextlib.closing(open_sink(f"kafka://{broker}/{name}", source=source)) as sink:
        sink.write(table(0, range(3)))
        sink.flush()
        recreate(broker, name)

        def is_reported():
            sink.write(table(0, [3]))
            sink.flush()
            said[:] = [text for record in caplog.records if "recreated" in (text := record.getMessage())]
            return bool(said)

        wait_for(is_reported, "the warning")
        assert all(is_reported() for _ in range(5))
        monkeypatch.setattr(clients, "SURE_S", 0.2)
        recreate(broker, name, 1)
        with raises(ConnectorError, reason="deleted", named="fewer partitions"):
            while True:
                sink.write(table(1, [4]))
                sink.flush()
    assert len(said) == 1
    assert repr(name) in said[0]


def test_a_topic_that_takes_less_than_at_first(broker, topic, source, caplog):
    name, dead = topic("out", 1), topic("dead", 1)
    with (
        contextlib.closing(open_sink(f"kafka://{broker}/{name}", source=source)) as sink,
        contextlib.closing(open_sink(f"kafka://{broker}/{dead}", source=source, beside=sink)) as other,
    ):
        sink.reject = lambda reason, text: other.write(bad([json.loads(text)["offset"]]) | {"reason": [reason]})
        sink.flush()
        takes_at_most(broker, name, 3000)
        sink.write(table(0, range(3), label=["short", "long" * 5000, None]))
        sink.write(table(0, range(3, 40), label=["some" * 100] * 37))
        other.write(bad([40]) | {"raw": ["{" * 9000]})
        sink.flush()
        takes_at_most(broker, name, 200)
        sink.write(table(0, [41], label=["long" * 100]))
        with raises(ConnectorError, reason="too small", option="max.message.bytes"):
            sink.flush()
    found = {row["offset"]: row for row in rows(broker, name)}
    assert list(found) == [0, *range(2, 40)]
    assert found[3]["label"] == "some" * 100
    letters = {row["offset"]: row for row in rows(broker, dead)}
    assert set(letters) == {1, 40}
    assert "too large" in letters[1]["reason"]
    assert len(letters[40]["raw"]) == 9000  # another topic, with a larger limit
    assert f"the topic {name} takes less than at first: now 2872 bytes a record" in caplog.text


def test_a_topic_that_takes_no_row_is_refused(broker, topic):
    name = topic("out", 1, **{"max.message.bytes": "100"})
    with raises(ConnectorError, reason="too small", option="max.message.bytes", named=name):
        open_sink(f"kafka://{broker}/{name}")
    with raises(ConnectorError, reason="too small", option="max_request_size"):
        open_sink(f"kafka://{broker}/{topic('out', 1)}?max_request_size=500")


def test_a_compacted_topic_is_known(broker, topic):
    name = topic("out", 1, **{"cleanup.policy": "compact"})
    sink = open_sink(f"kafka://{broker}/{name}")
    with contextlib.closing(sink), raises(ConnectorError, reason="compacted", named=name):
        sink.write(table(0, [1], key=[None]))


@pytest.mark.parametrize("flushes", [False, True])
def test_the_older_of_two_is_fenced_and_says_so(broker, topic, flushes):
    name = topic("out", 1)
    url = f"kafka://{broker}/{name}?transactional_id={name}"
    with contextlib.closing(open_sink(url)) as older, contextlib.closing(open_sink(url)) as newer:
        older.write(table(0, [0]))
        older.flush()
        newer.write(table(0, [1]))
        if flushes:
            newer.flush()
        with raises(ConnectorError, reason="fenced", option="transactional_id", named=name):
            older.write(table(0, [2]))
            older.flush()
        newer.flush()
    assert [row["offset"] for row in rows(broker, name)] == [0, 1]


def test_refused_times_hint_at_the_clock(broker, topic, monkeypatch):
    name, now = topic("out", 1), time.time()
    clock = {"monotonic": time.monotonic, "sleep": time.sleep, "clock_gettime": time.clock_gettime}
    clock["CLOCK_MONOTONIC"] = time.CLOCK_MONOTONIC
    monkeypatch.setattr(transactions, "time", SimpleNamespace(time=lambda: now + 86400 * 1.5, **clock))
    with contextlib.closing(open_sink(f"kafka://{broker}/{name}")) as sink:
        sink.write(table(0, [0]))
        with raises(ConnectorError, reason="write", named="clock"):
            sink.flush()


def test_an_older_run_that_wakes_leaves_the_newer_one_alone(broker, topic, source, monkeypatch):
    name = topic("out")
    with contextlib.closing(open_sink(f"kafka://{broker}/{name}", source=source)) as old:
        old.write(table(0, [0]))
        old.flush()
        kept = old.position
        old.write(table(0, [1]))
        with contextlib.closing(open_sink(f"kafka://{broker}/{name}", source=source, resume=True)) as new:
            new.rewind(kept)  # and has not written yet
            lost = kafka_errors.KafkaTimeoutError("slept for too long")
            with monkeypatch.context() as patch, raises(ConnectorError, reason="fenced"):
                patch.setattr(transactions.TransactionalProducer, "commit", mock.Mock(side_effect=[lost, None]))
                old.flush()
            new.write(table(0, [1, 2]))
            new.flush()
    assert [row["offset"] for row in rows(broker, name)] == [0, 1, 2]
