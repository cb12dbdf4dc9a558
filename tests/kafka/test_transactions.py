"""Transactions of a Kafka sink, with simulated brokers, clock and errors."""

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace
from unittest import mock

import pytest

from connectors import ConnectorError
from connectors.errors import UnreachableError
from connectors.kafka import failures, transactions
from connectors.kafka.clients import Topic
from connectors.kafka.mark import Mark
from connectors.kafka.producer import BackgroundCall
from connectors.kafka.transactions import Transactions
from tests.commands import wait_for
from tests.errors import raises

errors = pytest.importorskip("kafka.errors")


class Cluster:
    """Committed data, and errors of the next calls before and after a commit."""

    def __init__(self):
        self.now, self.step, self.pauses = 100.0, 0.0, []
        self.log, self.records, self.commits, self.offsets, self.token = [], [], 0, {}, ""
        self.before, self.after, self.starts = [], [], []
        self.producers, self.n_left, self.n_aborted, self.is_gone = [], 0, 0, None
        self.free = threading.Event()  # commits wait for it
        self.free.set()
        self.checked = []

    name, client = "t", {"transaction_timeout_ms": 10_000}

    def find_deleted(self, topics):
        self.checked.append(list(topics))
        return self.is_gone

    def monotonic(self):
        self.now += self.step
        return self.now

    def sleep(self, seconds):
        self.pauses.append(round(seconds, 3))
        self.now += seconds

    def producer(self, _, identity):
        assert identity == "id"
        if self.starts:
            raise self.starts.pop()
        self.producers.append(made := Producer(self))
        return made

    def mark(self):
        return {p: SimpleNamespace(offset=offset, metadata=self.token) for p, offset in self.offsets.items()}


class Producer:
    refusal = None

    def __init__(self, cluster):
        self.cluster, self.sent, self.is_open, self.free = cluster, [], False, cluster.free

    def begin(self):
        assert not self.is_open
        self.is_open = True

    def send(self, stretch):
        assert self.is_open
        self.sent.append(stretch)

    def commit(self, offsets, group):
        assert self.is_open
        assert group == "group"
        self.free.wait(20)
        if self is not self.cluster.producers[-1]:
            return
        if self.cluster.before:
            raise self.cluster.before.pop()
        self.cluster.commits += 1
        self.cluster.log += [value for stretch in self.sent for value in stretch[2]]
        for tp, keys, values, _ in self.sent:
            records = zip(keys, values, strict=True)
            self.cluster.records += [(tp.topic, tp.partition, key, value) for key, value in records]
        for tp, found in offsets.items():
            self.cluster.offsets[tp.partition], self.cluster.token = found.offset, found.metadata
        self.sent, self.is_open = [], False
        if self.cluster.after:
            raise self.cluster.after.pop()

    def abort(self):
        self.cluster.n_aborted += 1
        return BackgroundCall(lambda: None, "abort")

    def abandon(self):
        self.cluster.n_left += 1
        return BackgroundCall(lambda: None, "leave")


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster()
    clock = {"monotonic": made.monotonic, "time": lambda: 1.7, "sleep": made.sleep, "CLOCK_MONOTONIC": 1}
    clock["clock_gettime"] = lambda _: made.now
    monkeypatch.setattr(transactions, "time", SimpleNamespace(**clock))
    monkeypatch.setattr(transactions, "TransactionalProducer", made.producer)
    monkeypatch.setattr(transactions, "CHECK_S", 0.002)
    monkeypatch.setattr(failures, "RETRY_S", 0.0)
    yield made
    made.free.set()


def begun(cluster, *, marked=True, interval_s=5.0, timeout_s=None):
    source = SimpleNamespace(topic="in", position={"in": {"0": 0}}, beginnings={}) if marked else None
    mark = Mark(cluster, "group", source, trust="check", fresh=False)
    mark.committed_offsets = cluster.mark
    made = Transactions(cluster, mark, identity="id", interval_s=interval_s, timeout_s=timeout_s)
    made.limits.by_topic["out"] = 1 << 20
    made.topics["out"] = Topic([0], None)
    made.exclude["out"] = lambda keys, values: {i for i, value in enumerate(values) if value == b"large"}
    made.open()
    return made


def add(made, *values, offset=None):
    made.add("out", 0, [b"k"] * len(values), values)
    if made.mark.topic is not None:
        made.mark.fresh_rows([0] * len(values), range(len(values)) if offset is None else [offset])


def test_records_are_sent_in_large_batches_or_at_the_commit(cluster):
    made = begun(cluster, marked=False)
    (producer,) = cluster.producers
    add(made, b"x" * ((1 << 18) - 1))
    assert not producer.is_open
    add(made, b"x")
    assert [(len(keys), len(values), now) for _, keys, values, now in producer.sent] == [(1, 1, 1700), (1, 1, 1700)]
    add(made, b"l" * ((1 << 18) - 1))
    assert len(producer.sent) == 2
    made.commit()
    assert [len(value) for value in cluster.log] == [(1 << 18) - 1, 1, (1 << 18) - 1]
    assert cluster.commits == 1
    made.commit()  # nothing is left
    assert cluster.commits == 1
    made.limits.by_topic["out"] = 1000
    add(made, *[b"y" * 100] * 9)
    made._ship()
    assert [(len(keys), len(values)) for _, keys, values, _ in producer.sent] == [(7, 7), (2, 2)]


def test_rows_are_committed_after_the_interval_while_others_arrive(cluster):
    made = begun(cluster)
    (producer,) = cluster.producers
    made.commit()  # the first claims the mark
    add(made, b"a")
    cluster.now += 4.5
    made.advance()
    assert not producer.is_open
    cluster.free.clear()
    cluster.now += 0.5
    made.advance()
    assert producer.is_open
    add(made, b"b" * (1 << 18), offset=1)  # not sent before the commit ends
    cluster.now += 3.0
    made.advance()
    assert len(producer.sent) == 1
    cluster.free.set()
    wait_for(lambda: made.advance() or (cluster.commits == 2 and made.mark.committed == {0: 1}), "the commit")
    assert (cluster.log, made.mark.committed) == ([b"a"], {0: 1})
    assert not producer.is_open
    cluster.now += 1.5
    made.advance()
    assert not producer.is_open
    cluster.free.clear()
    cluster.now += 0.5
    made.advance()
    assert producer.is_open
    cluster.free.set()
    made.commit()
    assert cluster.log == [b"a", b"b" * (1 << 18)]
    assert (cluster.commits, cluster.offsets) == (3, {0: 2})


@pytest.mark.parametrize("name", ["KafkaTimeoutError", "InvalidTxnStateError"])
def test_a_transaction_that_failed_is_repeated_by_a_new_producer(cluster, name):
    made = begun(cluster)
    large = b"b" * (1 << 18)  # sent at once
    add(made, b"a", large)
    add(made, b"c", offset=2)
    cluster.before = [getattr(errors, name)("why")] * 3
    made.commit()
    assert (cluster.log, cluster.commits, cluster.offsets) == ([b"a", large, b"c"], 1, {0: 3})
    assert (len(cluster.producers), cluster.n_left) == (4, 3)
    assert cluster.checked == [["out", "in"]] * 3
    assert cluster.pauses == ([0.0, 0.1, 0.2] if name == "InvalidTxnStateError" else [])
    add(made, b"d", offset=3)
    made.commit()
    assert cluster.log[3:] == [b"d"]


def test_a_transaction_that_succeeded_without_a_response_is_not_repeated(cluster):
    made = begun(cluster)
    add(made, b"a")
    cluster.after = [errors.KafkaTimeoutError("no response")]
    made.commit()
    assert (cluster.log, cluster.commits, len(cluster.producers)) == ([b"a"], 1, 2)
    assert made.mark.committed == {0: 1}


def test_a_producer_that_cannot_begin_is_replaced(cluster, monkeypatch):
    made = begun(cluster)
    add(made, b"a")
    monkeypatch.setattr(cluster.producers[0], "begin", mock.Mock(side_effect=errors.IllegalStateError("why")))
    cluster.starts = [UnreachableError("not yet")]
    made.commit()
    assert (cluster.log, cluster.commits, len(cluster.producers)) == ([b"a"], 1, 2)


def test_no_more_than_twenty_repairs_in_a_row(cluster):
    made = begun(cluster)
    cluster.before = [errors.InvalidTxnStateError("why")] * 20
    add(made, b"a")
    made.commit()
    add(made, b"b", offset=1)
    cluster.before = [errors.InvalidTxnStateError("why")] * 21
    with raises(ConnectorError, reason="write", named="InvalidTxnState"):
        made.commit()
    assert (cluster.log, len(cluster.producers)) == ([b"a"], 41)


@pytest.mark.parametrize(
    ("name", "reason"), [("TopicAuthorizationFailedError", "write"), ("ProducerFencedError", "fenced")]
)
def test_lasting_errors_end_the_run(cluster, name, reason):
    made = begun(cluster, marked=False)
    add(made, b"a")
    cluster.before = [error := getattr(errors, name)("why")]
    with raises(ConnectorError, reason=reason) as caught:
        made.commit()
    assert caught.value.__cause__ is error
    assert len(cluster.producers) == 1


@pytest.mark.parametrize(("seconds", "commits"), [(5.0, 0), (5.5, 1)])
def test_without_a_mark_a_transaction_fenced_after_half_its_timeout_is_repeated(cluster, seconds, commits):
    made = begun(cluster, marked=False)
    add(made, b"a" * (1 << 18))  # sent at once
    cluster.now += seconds
    cluster.before = [errors.ProducerFencedError("why")]
    if commits:
        made.commit()
    else:
        with raises(ConnectorError, reason="fenced", option="transactional_id"):
            made.commit()
    assert cluster.commits == commits


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("after_s", [0.0, 2.5, "start", None])
def test_a_fenced_run_ends_only_if_another_one_writes_the_mark(cluster, is_first, after_s):
    cluster.offsets, cluster.token = {0: 0}, "earlier"
    made = begun(cluster)
    if not is_first:
        add(made, b"a")
        made.commit()
    fenced_at, written = cluster.now, list(cluster.log)

    def mark():
        if after_s == "start":
            is_there = len(cluster.producers) > 1
        else:
            is_there = after_s is not None and cluster.now >= fenced_at + after_s
        if is_there:
            cluster.offsets, cluster.token = {0: 1}, "newer"
        return Cluster.mark(cluster)

    made.mark.committed_offsets = mark
    add(made, b"b", offset=1)
    cluster.before = [errors.ProducerFencedError("an older run looked for the mark too late")]
    if after_s is None:
        made.commit()
        assert (cluster.log, cluster.offsets) == ([*written, b"b"], {0: 2})
        return
    with raises(ConnectorError, reason="fenced", option="transactional_id"):
        made.commit()
    assert cluster.log == written
    assert len(cluster.producers) == 1 + (after_s == "start")


@pytest.mark.parametrize(
    ("offset", "token", "reason", "n_producers"),
    [(7, "", "fenced", 2), (1, "another", "fenced", 1), (0, "", "mark", 2)],
)
def test_a_mark_that_another_run_wrote_or_reset_ends_the_run(cluster, offset, token, reason, n_producers):
    made = begun(cluster)
    add(made, b"a")
    made.commit()
    cluster.before = [errors.KafkaTimeoutError("no response")]
    add(made, b"b", offset=1)
    cluster.offsets, cluster.token = {0: offset}, token
    with raises(ConnectorError, reason=reason):
        made.commit()
    assert (cluster.log, len(cluster.producers)) == ([b"a"], n_producers)


def test_records_that_the_topic_does_not_take_are_rejected(cluster):
    made = begun(cluster)
    made.limits.lower = mock.Mock()
    add(made, b"a", b"large", b"b")
    cluster.before = [errors.MessageSizeTooLargeError("why")]
    made.commit()
    made.limits.lower.assert_called_once_with()
    assert (cluster.log, cluster.offsets) == ([b"a", b"b"], {0: 3})
    cluster.before = [errors.KafkaTimeoutError("why")]
    add(made, b"large", offset=3)
    made.commit()
    assert cluster.log == [b"a", b"b", b"large"]  # rejected only if a record was too large
    made.limits.lower.assert_called_once_with()


@contextlib.contextmanager
def stuck(cluster, made, least, most):
    """Let the first producer wait forever; bound the seconds until the end."""
    add(made, b"a")
    cluster.producers[0].free, cluster.step, began = threading.Event(), 0.5, cluster.now
    yield
    cluster.producers[0].free.set()
    assert least <= cluster.now - began <= most


def test_a_commit_without_a_response_is_repeated_after_half_a_minute(cluster):
    made = begun(cluster)
    with stuck(cluster, made, 30, 40):
        made.commit()
    assert (cluster.log, len(cluster.producers)) == ([b"a"], 2)
    assert cluster.checked[0] == ["out", "in"]
    assert 4 <= len(cluster.checked) <= 9


def test_the_timeout_of_the_run_ends_the_wait_for_a_response(cluster, monkeypatch):
    monkeypatch.setattr(failures, "time", transactions.time)
    made = begun(cluster, timeout_s=4.0)
    with stuck(cluster, made, 4, 8), raises(UnreachableError, named="min.insync.replicas"):
        made.commit()
    assert cluster.log == []


@pytest.mark.parametrize("topic", ["in", "out"])
def test_a_topic_that_is_deleted_during_a_commit_is_named(cluster, topic):
    made, cluster.is_gone = begun(cluster), topic
    with stuck(cluster, made, 3, 8), raises(ConnectorError, reason="deleted", named=topic) as caught:
        made.commit()
    assert ("the events" in str(caught.value)) == (topic == "in")


def test_a_run_that_is_ending_waits_five_seconds_for_brokers(cluster):
    made = begun(cluster)
    with stuck(cluster, made, 5, 7), raises(UnreachableError, named="checkpoint"):
        made.hurry()
        made.commit()
    assert cluster.checked == []


def test_a_refusal_is_not_waited_for(cluster):
    made = begun(cluster)
    with stuck(cluster, made, 0, 3), raises(ConnectorError, reason="write"):
        cluster.producers[0].refusal = errors.TopicAuthorizationFailedError("why")
        made.commit()


def test_the_last_sink_closes_the_producer(cluster):
    made = begun(cluster)
    assert made.register() is made
    add(made, b"a" * (1 << 18))
    made.close()
    assert (cluster.n_aborted, cluster.n_left) == (0, 0)
    made.close()
    assert (cluster.n_aborted, cluster.n_left, cluster.log) == (1, 1, [])
    idle = begun(cluster)
    idle.close()
    assert (cluster.n_aborted, cluster.n_left) == (1, 2)


@pytest.mark.parametrize(("seconds", "left"), [(0.0, 5.0), (3.0, 2.0), (9.0, 0.0)])
def test_a_commit_is_waited_for_when_the_producer_is_closed_but_not_beyond_the_end_of_the_run(cluster, seconds, left):
    made = begun(cluster)
    made.hurry()
    cluster.now += seconds
    made._commit = commit = mock.Mock()
    made.close()
    commit.wait.assert_called_once_with(left)
    assert (cluster.n_aborted, cluster.n_left) == (0, 1)


def test_a_resumed_run_claims_the_mark_once(cluster):
    cluster.offsets = {0: 4}
    for marked in (True, False):
        mark = Mark(cluster, "group", SimpleNamespace(topic="in") if marked else None, trust="check", fresh=False)
        mark.committed_offsets = cluster.mark if marked else dict
        made = Transactions(cluster, mark, identity="id", interval_s=5.0, timeout_s=None)
        made.rewind({"mark": {"0": 2}})
        made.rewind({"mark": {"0": 9}})  # of another sink
        assert made.mark.position == {"mark": {"0": 4} if marked else {}}
        assert cluster.commits == 1
    assert len(cluster.producers) == 2
