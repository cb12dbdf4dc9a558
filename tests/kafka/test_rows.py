"""Rows of a Kafka sink: keys, partitions, sizes, and rows already in the topic.

The brokers are in memory.
"""

from __future__ import annotations

import json
import time
from types import MappingProxyType, SimpleNamespace

import pytest

from connectors import ConnectorError
from connectors.errors import UnreachableError
from connectors.kafka import failures, transactions
from connectors.kafka import sink as sinks
from connectors.kafka.clients import Topic
from connectors.kafka.mark import Mark
from connectors.kafka.sink import KafkaSink
from connectors.kafka.source import KafkaSource
from connectors.registry import SinkSettings
from tests.errors import raises
from tests.kafka.test_transactions import Cluster

errors = pytest.importorskip("kafka.errors")
DefaultPartitioner = pytest.importorskip("kafka.partitioner.default").DefaultPartitioner


class Written(KafkaSource):
    """The committed records of a topic."""

    cluster: Cluster

    def __init__(self, *, servers, topic, **options):
        self.topic, self.cluster.settings, self.at = topic, options, {}

    @property
    def position(self):
        return {self.topic: {str(p): len(self.values(p)) for p in range(3)}}

    def values(self, partition):
        return [value for _, p, _, value in self.cluster.records if p == partition]

    def seek(self, position):
        self.at = position[self.topic]

    def __iter__(self):
        for p in range(3):
            values = self.values(p)[self.at.get(str(p), 0) :]
            yield SimpleNamespace(raw=[value.decode() for value in values if value is not None])

    def close(self):
        self.cluster.n_closed += 1


class Events(Written):
    """A source whose events nobody reads."""

    cluster, beginnings, position = "c", MappingProxyType({}), MappingProxyType({"in": {"0": 0}})

    def __init__(self):
        self.topic, self.name = "in", "kafka://b:9092/in"


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster()
    made.n_closed, made.limit, made.policy, made.settings = 0, None, "delete", {}
    found = {"out": Topic([0, 1, 2], None), "dead": Topic([0], None)}
    monkeypatch.setattr(sinks.Brokers, "admin", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(sinks.Brokers, "find_topic", lambda _, __, topic: (found.get(topic), "c"))
    monkeypatch.setattr(sinks, "largest_record", lambda *_: made.limit)
    monkeypatch.setattr(sinks, "topic_setting", lambda *_: made.policy)
    monkeypatch.setattr(Written, "cluster", made, raising=False)
    monkeypatch.setattr(sinks, "KafkaSource", Written)
    monkeypatch.setattr(Mark, "committed_offsets", lambda mark: made.mark() if mark.topic else {})
    monkeypatch.setattr(transactions, "TransactionalProducer", made.producer)
    return made


def opened(topic="out", settings=None, **options):
    options = {"transactional_id": "id", "mark_group": "group"} | options
    return KafkaSink(servers="b:9092", topic=topic, settings=settings or SinkSettings(), **options)


def test_rows_keep_the_partitions_of_their_events(cluster):
    sink = opened()
    sink.write({"partition": [4, 0], "offset": [1, 2], "key": ["k", b"\xff"], "score": [0.5, None]})
    sink.write({"partition": [2], "offset": [7], "key": [None]})
    sink.write({"partition": [1], "offset": [8], "key": [7]})
    sink.flush()
    assert [(topic, partition, key, json.loads(value)) for topic, partition, key, value in cluster.records] == [
        ("out", 0, b"\xff", {"partition": 0, "offset": 2, "score": None}),
        ("out", 1, b"k", {"partition": 4, "offset": 1, "score": 0.5}),
        ("out", 1, b"7", {"partition": 1, "offset": 8}),
        ("out", 2, None, {"partition": 2, "offset": 7}),
    ]
    assert sink.position == {"mark": {}}
    assert repr(sink) == "KafkaSink('kafka://b:9092/out')"
    sink.close()
    sink.close()
    assert cluster.n_left == 1


def test_a_compacted_topic_takes_only_rows_with_keys(cluster):
    cluster.policy = "compact,delete"
    sink, dead = opened(), opened("dead")
    sink.reject = lambda *_: None
    sink.check_replaced()
    sink.write({"partition": [0], "offset": [1], "key": ["k"]})
    with raises(ConnectorError, reason="compacted", named="'out'"):
        sink.write({"partition": [0, 0], "offset": [2, 3], "key": ["k", None]})
    with raises(ConnectorError, reason="compacted", named="'dead'"):
        dead.check_replaced()


def test_other_rows_go_by_their_keys_or_in_turn(cluster):
    sink, choose = opened(), DefaultPartitioner().partition
    there = SimpleNamespace(topics=lambda: ["out"])
    there.partitions_for_topic = there.available_partitions_for_topic = lambda _: {0, 1, 2}
    keys = ["a", "b", "c", "d", "\ud800"]
    for _ in range(3):
        sink.write({"line": range(6), "key": [*keys, None]})
    sink.write({"line": [9, 9]})
    sink.flush()
    places = [(partition, key) for _, partition, key, _ in cluster.records]
    sent = [*(key.encode() for key in keys[:4]), b"?"]
    assert {(p, key) for p, key in places if key} == {(choose("out", key, key, b"", b"", there), key) for key in sent}
    assert [p for p, key in places if not key] == [0, 1, 1, 1, 2]  # in turn, one for each table


def test_records_may_be_as_large_as_the_topic_allows(cluster):
    row = {"offset": [1], "raw": ["x" * 300]}
    size = len(json.dumps({"offset": 1, "raw": "x" * 300}, separators=(",", ":"))) + 2
    found, rejected = [], []
    for limit in (size, size - 1):
        cluster.limit = limit
        for rejects in (False, True):
            sink = opened()
            if rejects:
                sink.reject = lambda *given: rejected.append(given)
            sink.write(row | {"key": ["kk"]})
            sink.write({"offset": [0, 1], "raw": ["", "x" * 300], "key": [None, "kk"]})
            sink.write(row)
            sink.flush()
            shortened = [json.loads(value).get("raw_too_large") for *_, value in cluster.records]
            found.append((len(shortened), shortened.count("300 characters")))
            cluster.records = []
    sink = opened()
    with raises(ConnectorError):
        sink.write({"offset": [1], "raw": ["x"], "key": ["k" * size]})
    assert found == [(4, 0), (4, 0), (4, 2), (2, 0)]
    assert rejected == 2 * [(sinks.too_large(size), json.dumps({"offset": 1, "raw": "x" * 300}, separators=(",", ":")))]


def test_rows_before_the_mark_are_not_written_again(cluster):
    source = Events()
    sink = opened(settings=SinkSettings(source=source))
    assert sink.can_rewind
    sink.write({"partition": [0, 0], "offset": [0, 1]})
    sink.flush()
    assert sink.position == {"mark": {"0": 2}}
    with raises(ConnectorError, reason="no checkpoint", option="mark"):
        opened(settings=SinkSettings(source=source))
    again = opened(settings=SinkSettings(source=source, resume=True))
    again.rewind({"mark": {"0": 1}})
    again.write({"partition": [0, 0], "offset": [1, 2]})
    with pytest.raises(ConnectorError):
        again.write({"partition": [0]})
    with pytest.raises(ConnectorError):
        again.write({"offset": [0]})
    again.flush()
    assert [json.loads(value)["offset"] for *_, value in cluster.records] == [0, 1, 2]


def test_rows_with_columns_that_identify_them_are_read_back(cluster):
    settings = SinkSettings(source=Events(), distinct=("id", "day"))
    sink = opened(settings=settings)
    sink.flush()
    begin = sink.position
    assert begin == {"mark": {}, "ends": {"0": 0, "1": 0, "2": 0}}
    sink.write({"id": ["a", "b"], "day": [1, None], "key": ["x", "y"]})
    sink.write({"id": ["c"], "score": [1]})
    sink.flush()
    cluster.records += [("out", 2, None, value) for value in (b"no json", b'{"other": 1}', None, b"3")]
    again = opened(settings=settings, request_timeout_ms="5000", linger_ms="3")
    del begin["ends"]["2"]  # a new partition
    again.rewind(begin)
    assert cluster.settings["request_timeout_ms"] == 5000
    assert "linger_ms" not in cluster.settings  # an option of producers
    assert again.position == begin  # while rows that are there may come
    again.write({"id": ["a", "d"], "day": [1, 1]})
    again.write({"id": ["b", "c"]})
    assert again.position["ends"]["2"] >= 4
    again.write({"id": ["a"], "day": [1]})
    again.flush()
    found = [json.loads(value).get("id") for *_, value in cluster.records if value and value[:6] == b'{"id":']
    assert sorted(found) == ["a", "a", "b", "c", "d"]
    position = again.position
    again.write({"id": ["e"], "day": [1]})
    again.flush()
    late = opened(settings=settings)
    late.rewind(position)
    late.write({"id": ["e"], "day": [1]})
    late.flush()
    assert sum(value[:9] == b'{"id":"e"' for *_, value in cluster.records if value) == 1
    assert cluster.n_closed >= 4


def test_sinks_that_share_transactions_have_equal_options(cluster):
    options = {"commit_interval": "1", "sasl_plain_password": "hunter2"}
    sink = opened(**options)
    beside = opened("dead", SinkSettings(beside=sink), **options)
    for other in ({"commit_interval": "2"}, {"sasl_plain_password": "hunter3"}):
        with raises(ConnectorError, reason="differs", option=next(iter(other))) as caught:
            opened("dead", SinkSettings(beside=sink), **options | other)
        assert "hunter" not in str(caught.value)
    sink.close()
    beside.close()
    assert (len(cluster.producers), cluster.n_left) == (0, 0)


def test_a_sink_of_a_run_that_is_ending_waits_for_a_few_seconds_only(cluster, monkeypatch):
    monkeypatch.setattr(transactions, "time", SimpleNamespace(**vars(time) | {"monotonic": cluster.monotonic}))
    monkeypatch.setattr(failures, "RETRY_S", 0.0)
    sink = opened()
    sink.write({"offset": [0]})
    sink.hurry()
    cluster.before, cluster.step = [errors.KafkaTimeoutError("why")], 0.5
    cluster.starts = 100 * [UnreachableError("why")]
    with raises(UnreachableError):
        sink.flush()
    assert 80 < len(cluster.starts) < 100


def test_sinks_that_cannot_be_opened(cluster, monkeypatch):
    with raises(ConnectorError, reason="no topic", named="nowhere"):
        opened("nowhere")
    with raises(ConnectorError, reason="unknown", option="linger"):
        opened(linger="5")
    with raises(ConnectorError, reason="value", option="commit_interval"):
        opened(commit_interval="-1")
    monkeypatch.setattr(Events, "cluster", "another")
    with raises(ConnectorError, reason="cluster"):
        opened(settings=SinkSettings(source=Events()))
    sink = opened()
    assert not sink.can_rewind
    with raises(ConnectorError, reason="not seekable"):
        sink.rewind({"mark": {}})
