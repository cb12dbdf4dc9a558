from __future__ import annotations

import errno
import logging
import os
import threading
import time

import pytest

from connectors.errors import ConnectorError, UnreachableError
from connectors.kafka import failures
from connectors.kafka.failures import RetryTimeout, is_recoverable, is_transient
from tests.errors import raises

errors = pytest.importorskip("kafka.errors")
TopicPartition = pytest.importorskip("kafka").TopicPartition

# Caused by settings, permissions or data; a retry fails as well.
LASTING = [
    *("TopicAuthorizationFailedError", "SaslAuthenticationFailedError", "UnsupportedVersionError", "InvalidTopicError"),
    *("OffsetOutOfRangeError", "MessageSizeTooLargeError", "CorruptRecordError", "CommitFailedError", "KafkaError"),
]


def classes():
    return [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.KafkaError)]


def test_retriable_errors_of_the_client_are_transient():
    assert [kind for kind in classes() if kind.retriable and not is_transient(kind("why"))] == []


@pytest.mark.parametrize("name", LASTING)
def test_errors_that_are_not_transient(name):
    assert not is_transient(getattr(errors, name)("why"))
    assert not is_recoverable(getattr(errors, name)("why"))


def test_every_name_in_the_tables_is_an_error_of_the_client():
    """Another version of the client may have other names, which would never match."""
    assert {name for name in failures.PASSING | failures.RENEWED if not hasattr(errors, name)} == set()
    assert not any(getattr(errors, name).retriable for name in failures.PASSING | failures.RENEWED)


@pytest.mark.parametrize("name", ["ProducerFencedError", "OutOfOrderSequenceNumberError", "InvalidTxnStateError"])
def test_errors_that_a_new_producer_resolves(name):
    error = getattr(errors, name)("why")
    assert is_recoverable(error)
    assert not is_transient(error)


def test_an_error_in_the_text_of_another_counts():
    """An example is a transactional producer whose request timed out."""
    late = errors.RequestTimedOutError("Request timed out after 29999 ms")
    wrapped = errors.KafkaError(f"Could not execute transactional request for unknown reasons: {late}")
    assert is_transient(wrapped)
    assert is_transient(errors.KafkaError(f"Cannot execute transactional method because of an error: {wrapped!r}"))
    refused = errors.KafkaError(f"Could not find a coordinator: {errors.GroupAuthorizationFailedError('g')}")
    assert not is_transient(refused)
    both = errors.KafkaTimeoutError(f"after {errors.TopicAuthorizationFailedError('t')}")
    assert not is_transient(both)


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), True),
        (TimeoutError(), True),
        (FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "ca.pem"), False),
        (RuntimeError("Transport closed for writes"), True),
        (ValueError("not a broker"), False),
    ],
)
def test_errors_of_the_system(error, passing):
    assert is_transient(error) is passing


def failing(times, error):
    left = [error] * times

    def call():
        if left:
            raise left.pop()
        return "done"

    return call


def test_transient_errors_are_retried_with_occasional_warnings(caplog, monkeypatch):
    monkeypatch.setattr(failures, "RETRY_S", 0.0)
    patience = RetryTimeout(float("inf"))
    with caplog.at_level(logging.WARNING, "connectors"):
        assert patience.retry(failing(50, UnreachableError("t: the mark cannot be read: NotCoordinator"))) == "done"
        patience.reset("t")
        patience.reset("t")
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert said[0].startswith("t: the mark cannot be read: NotCoordinator")
    assert said[1] == "t: a broker is available again; continuing"


def test_an_error_is_raised_after_the_timeout(monkeypatch):
    monkeypatch.setattr(failures, "RETRY_S", 0.001)
    with raises(UnreachableError, named="no one there"):
        RetryTimeout(0.01).retry(failing(10**6, UnreachableError("no one there")))


def test_earlier_waiting_counts_towards_the_timeout():
    with raises(UnreachableError, named="9 s"):
        RetryTimeout(8.0).wait(UnreachableError("no answer"), time.monotonic() - 9.0)


def test_permanent_errors_are_raised_at_once():
    with raises(ConnectorError, named="no right"):
        RetryTimeout(float("inf")).retry(failing(1, ConnectorError("no right")))


def test_a_client_that_finds_no_broker_leaves_nothing_behind():
    """While brokers are down for hours, clients are created repeatedly."""
    kafka = pytest.importorskip("kafka")
    from connectors.kafka.clients import connect

    before = set(threading.enumerate())
    for make in (kafka.KafkaAdminClient, kafka.KafkaConsumer, kafka.KafkaProducer):
        with raises(UnreachableError, reason="no answer"):
            connect("t", ["127.0.0.1:1"], make, {"bootstrap_timeout_ms": 50})
    assert {thread for thread in threading.enumerate() if thread.name.startswith("kafka-io")} <= before


def test_an_unknown_host_is_distinguished_from_a_closed_port():
    from connectors.kafka.clients import connect

    with raises(UnreachableError, reason="unknown host", named="nowhere.invalid"):
        connect("t", ["nowhere.invalid:1"], pytest.importorskip("kafka").KafkaAdminClient, {"bootstrap_timeout_ms": 50})
