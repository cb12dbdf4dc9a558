"""Transactional producer that can be abandoned at any time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

from connectors.kafka.clients import Brokers, connect, import_kafka, talking
from connectors.kafka.failures import passes_anew
from connectors.kafka.packing import can_pack, pack, send_packed

_LEAVE_S = 60.0  # for a producer that is given up to notice it

Keys = list[bytes | None]
Values = list[bytes]

Stretch = tuple[Any, Keys, Values, int]
"""A partition, keys and values of records that are one batch, and their time."""


class BackgroundCall:
    """Call in a daemon thread.

    Parameters
    ----------
    call
        Function to call.
    name
        Name of the thread.
    """

    def __init__(self, call: Callable[[], Any], name: str) -> None:
        self._call, self._ended = call, threading.Event()
        self._error: Exception | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            self._call()
        except Exception as error:
            self._error = error
        finally:
            self._ended.set()

    @property
    def done(self) -> bool:
        """Whether the call has ended."""
        return self._ended.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the call; return whether it has ended."""
        return self._ended.wait(seconds)

    def result(self) -> None:
        """Raise the exception of the call, if any."""
        if self._error is not None:
            raise self._error


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
        kafka = import_kafka()
        settings: dict[str, Any] = {"max_block_ms": 20_000, "metrics_enabled": False, "batch_size": 1 << 17}
        # A broker ends a transaction a few milliseconds after it says so, and has the next one wait for that.
        settings |= {"retry_backoff_ms": 5, **brokers.client, "transactional_id": identity}
        self._producer = connect(brokers.name, brokers.servers, kafka.KafkaProducer, settings)
        self._failure: Exception | None = None  # what went wrong in the transaction before its end
        try:
            with talking(brokers.name, f"transactions as {identity} cannot be begun", passes_anew):
                self._producer.init_transactions()
        except BaseException:
            self.leave()
            raise
        self._packs = can_pack(self._producer)

    def begin(self) -> None:
        """Begin a transaction."""
        self._producer.begin_transaction()

    def send(self, stretch: Stretch) -> None:
        """Send records in the open transaction; `commit` raises the error if this fails."""
        tp, keys, values, now = stretch
        if self._failure is not None:
            return  # the whole transaction will be repeated
        try:
            if self._packs:
                send_packed(self._producer, tp, pack(keys, values), len(values), now)
            else:
                for key, value in zip(keys, values, strict=True):
                    self._producer.send(tp.topic, value, key, partition=tp.partition, timestamp_ms=now)
        except Exception as error:
            self._failure = error

    def commit(self, offsets: Mapping[Any, Any], group: str) -> None:
        """Commit the transaction, including the offsets of a group."""
        if self._failure is not None:
            raise self._failure
        if offsets:
            self._producer.send_offsets_to_transaction(offsets, group)
        self._producer.commit_transaction()

    @property
    def refusal(self) -> Exception | None:
        """Error of the transaction, which the client may report only after a long wait."""
        # There is no public way to ask; a version without this one reports the error at the end of its wait.
        manager: Any = getattr(self._producer, "_transaction_manager", None)
        return manager.last_error if hasattr(manager, "last_error") and manager.has_error() else None

    def abort(self) -> BackgroundCall:
        """Abort the transaction in the background."""
        return BackgroundCall(self._producer.abort_transaction, "abort")

    def leave(self) -> BackgroundCall:
        """Close the producer in the background and discard its records.

        `KafkaProducer.close` first sends the records. If it cannot, for example because the topic was deleted,
        kafka-python 3.0.12 does not close, and its thread never ends.
        """
        # There is no public way to discard records; a version without this one sends them first.
        with contextlib.suppress(AttributeError):
            self._producer._sender.force_close()
        return BackgroundCall(self._end, "a producer ends")

    def _end(self) -> None:
        from kafka.errors import KafkaConnectionError

        with contextlib.suppress(AttributeError):
            self._producer._sender.join(_LEAVE_S)  # it may be waiting for a broker
        with contextlib.suppress(Exception):
            self._producer.close(timeout=0)
        with contextlib.suppress(AttributeError):  # else a call that waits for the end of the transaction never ends
            self._producer._transaction_manager.authentication_failed(KafkaConnectionError("the producer was closed"))
