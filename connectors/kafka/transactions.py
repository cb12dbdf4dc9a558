"""Atomic transactions of records and the mark."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from connectors.errors import ConnectorError, FencedError, UnreachableError
from connectors.events import Position
from connectors.kafka.clients import Brokers, Topic, describe, logger
from connectors.kafka.failures import START_S, RetryTimeout, error_names, is_recoverable, is_transient
from connectors.kafka.mark import Mark
from connectors.kafka.producer import (
    BackgroundCall,
    Keys,
    RecordRange,
    SizeLimits,
    TransactionalProducer,
    Values,
    split_by_size,
)

_AT_ONCE = 1 << 18  # bytes of records that are sent without waiting for more
_MOST_REPAIRS = 20  # in a row, while all brokers were available
CHECK_S = 0.1  # between two checks of a pending commit
QUERY_S = 3.0  # between two checks whether topics still exist, and whether they are the same
_WARN_S = 10.0  # between two warnings that a broker is waited for
_GRACE_S = 5.0  # timeout of brokers when the run is ending
_STUCK_S = 30.0  # timeout of a commit: the client may wait for the response of a broker that has stopped
_TAKEOVER_S = 3.0  # in which a newer run writes the mark after its start
_FENCED = {"ProducerFencedError", "InvalidProducerEpochError"}
_TOO_LARGE = {"MessageSizeTooLargeError", "RecordListTooLargeError"}


def _clock() -> float:
    """Return seconds including suspend, which brokers count towards timeouts, too."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Transactions:
    """Transactional producer that one or more sinks share.

    Rows are buffered in a transaction until `commit`. New rows may arrive during a commit; they belong to the next
    transaction. A transaction that fails because of an unavailable broker is repeated by a new producer, unless the
    mark shows that it succeeded.

    Parameters
    ----------
    brokers
        Brokers to write to.
    mark
        Mark of the transactions.
    identity
        Transactional id. A newer producer with this id fences this one off.
    interval_s
        Age of a row at which it is committed.
    timeout_s
        Maximum time to wait for brokers. None waits forever, but only 30 s at the start.
    """

    def __init__(
        self, brokers: Brokers, mark: Mark, *, identity: str, interval_s: float, timeout_s: float | None
    ) -> None:
        self.brokers, self.mark, self.identity, self._interval_s = brokers, mark, identity, interval_s
        self.name, self.limits = brokers.name, SizeLimits(brokers)
        self.exclude: dict[str, Callable[[Keys, Values], set[int]]] = {}
        """Functions that reject larger records and return their indices, by topic."""
        self.topics: dict[str, Topic] = {}
        """Topics of the results by name."""
        self._asked = 0.0  # for their ids
        self._users = 1
        self._producer: TransactionalProducer | None = None
        self._rows: dict[Any, tuple[Keys, Values]] = {}  # keys and values that wait to be sent
        self._size = 0  # of those values
        self._sent: list[RecordRange] = []
        self._since: float | None = None  # arrival of the oldest row that is not being committed
        self._began = 0.0
        self._commit: BackgroundCall | None = None
        self._deadline = float("inf")  # for responses of brokers
        self.starting = RetryTimeout(START_S if timeout_s is None else timeout_s)
        self._timeout = RetryTimeout(float("inf") if timeout_s is None else timeout_s)
        self._repairs = 0  # since the last transaction that succeeded

    def register(self) -> Transactions:
        """Register another sink."""
        self._users += 1
        return self

    def mark_at_start(self) -> dict[int, int]:
        """Read the offsets of the mark before the run."""
        return self.starting.retry(self.mark.read_at_start, self._check_deadline)

    def rewind(self, position: Position) -> None:
        """Resume from a checkpoint."""
        if self._producer is not None:
            return  # another sink of these transactions has resumed
        if self.mark.topic is None:
            self.open()
            return
        self._open_producer()
        self.mark.resume(position, self.mark_at_start())
        self.commit()  # an older run that continues finds the mark of this one

    def open(self) -> None:
        """Create the producer, which fences off older ones, and start the mark."""
        if self._producer is None:
            self._open_producer()
            self.mark.begin(self.mark_at_start)

    def _open_producer(self) -> None:
        self.starting.retry(self._start, self._check_deadline)
        self.starting.reset(self.name)

    def _start(self) -> None:
        self._producer = TransactionalProducer(self.brokers, self.identity)

    @property
    def _current(self) -> TransactionalProducer:
        assert self._producer is not None
        return self._producer

    # Records -----------------------------------------------------------------------------------------------------

    def add(self, topic: str, partition: int, keys: Sequence[bytes | None], values: Sequence[bytes]) -> None:
        """Add records for a partition; they are sent in large batches or at the commit.

        A producer waits for the response to each batch of a partition before it sends the next.
        """
        from kafka import TopicPartition

        if self._since is None:
            self._since = time.monotonic()
        self._store(TopicPartition(topic, partition), keys, values)
        if self._commit is None and self._size >= _AT_ONCE:
            self._ship()

    def _store(self, tp: Any, keys: Sequence[bytes | None], values: Sequence[bytes]) -> None:
        rows = self._rows.setdefault(tp, ([], []))
        rows[0].extend(keys)
        rows[1].extend(values)
        self._size += sum(map(len, values))

    def _ship(self) -> None:
        """Send the buffered records in the open transaction."""
        now = int(time.time() * 1000)
        rows, self._rows, self._size = self._rows, {}, 0
        for tp, (keys, values) in rows.items():
            for start, end in split_by_size(keys, values, min(_AT_ONCE, self.limits.by_topic[tp.topic])):
                if not self._sent:
                    self._begin()
                self._sent.append((tp, keys[start:end], values[start:end], now))
                self._current.send(self._sent[-1])

    # Commit ------------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Start a background commit if rows have waited for the commit interval."""
        if self._commit is not None and self._commit.done():
            self._end()
        if self._commit is None and self._since is not None and time.monotonic() - self._since >= self._interval_s:
            self._begin_commit()

    def commit(self) -> None:
        """Commit all rows and wait for the result."""
        self.open()
        while self._commit is not None or self._since is not None or self.mark.is_due:
            if self._commit is None:
                self._begin_commit()
            self._end()

    def _begin(self) -> None:
        self._began = _clock()
        try:
            self._current.begin()
        except Exception as error:
            self._repair(error)
            self._current.begin()

    def _begin_commit(self) -> None:
        self._ship()
        if not self._sent:
            self._begin()
        self._since = None
        offsets, producer = self.mark.next_offsets(), self._current
        self._commit = BackgroundCall(lambda: producer.commit(offsets, self.mark.group), f"{self.identity} commits")

    def _end(self) -> None:
        """Wait for the commit, and repair it if it failed."""
        assert self._commit is not None
        from kafka.errors import KafkaTimeoutError

        call, since = self._commit, time.monotonic()
        checked = since
        while not call.wait(CHECK_S) and time.monotonic() - since < _STUCK_S and self._current.refusal is None:
            self._check_deadline()
            if time.monotonic() - checked > QUERY_S and self._deadline == float("inf"):
                self._check_topics()  # the client itself would retry forever
                checked = time.monotonic()
            if time.monotonic() - since > min(_WARN_S, self._timeout.seconds):
                what = (
                    "a commit got no response; partitions may lack a leader or replicas in sync (min.insync.replicas)"
                )
                self._timeout.wait(UnreachableError(f"{self.name}: {what}"), since)
        try:
            if not call.done() and (refusal := self._current.refusal) is not None:
                raise refusal
            if not call.done():
                raise KafkaTimeoutError(f"a commit did not end in {_STUCK_S:g} s")
            call.result()
        except Exception as error:
            if not self._repair(error):
                self._begin_commit()
                self._end()
                return
        self.mark.settle()
        self._sent, self._commit = [], None
        self._repairs = 0
        self._timeout.reset(self.name)
        self._warn_of_recreated()

    def _warn_of_recreated(self) -> None:
        """Warn of topics that were deleted and recreated: earlier results are lost."""
        if time.monotonic() - self._asked < QUERY_S:
            return
        self._asked = time.monotonic()
        for name, known in self.topics.items():
            current = known.id and self._current.topic_id(name)
            if current and current != known.id:
                what = "%s: the topic %r was deleted and recreated during the run, so that it lacks earlier results"
                logger.warning(what, self.name, name)
                self.topics[name] = replace(known, id=current)

    # Repairs -----------------------------------------------------------------------------------------------------

    def _repair(self, error: Exception) -> bool:
        """Replace a failed producer; return whether the transaction was committed.

        If it was not, its records are taken back.
        """
        if error_names(error) & _FENCED and self._is_replaced():
            raise _fenced(self, error)
        too_large = bool(error_names(error) & _TOO_LARGE)
        if not too_large and not is_recoverable(error):
            raise ConnectorError(f"{self.name}: results cannot be written: {describe(error)}", "write") from error
        if is_transient(error):
            self._timeout.wait(UnreachableError(f"{self.name}: results cannot be written: {describe(error)}"))
        else:
            self._repairs += 1
            if self._repairs > _MOST_REPAIRS:
                message = f"{self.name}: results cannot be written at all: {describe(error)}"
                raise ConnectorError(message, "write") from error
            logger.warning("%s: a transaction failed (%s): repeating it", self.name, describe(error))
            time.sleep(0.1 * (self._repairs - 1))
        self._check_deadline()
        if self._deadline == float("inf"):
            self._check_topics()
        mark = self._timeout.retry(functools.partial(self._restart, error), self._check_deadline)
        if self.mark.is_reached(mark):
            return True
        if self.mark.is_beyond(mark):
            raise _fenced(self, error)
        if message := self.mark.loss(mark):
            self._check_topics()
            raise ConnectorError(message, "mark") from error
        if too_large:
            self.limits.lower()
        self._take_back(reject=too_large)
        return False

    def _is_replaced(self) -> bool:
        """Return whether a newer run caused an error of `_FENCED`.

        Brokers also send these errors after a transaction timeout. An older run causes them, too, if it has started a
        producer before it found the mark of this run.
        """
        if self.mark.topic is None:
            half_s = float(self.brokers.client.get("transaction_timeout_ms", 60_000)) / 2000
            return _clock() - self._began <= half_s
        deadline = time.monotonic() + _TAKEOVER_S
        while not self._timeout.retry(self.mark.is_foreign, self._check_deadline):
            if time.monotonic() >= deadline:
                return False
            time.sleep(CHECK_S)
        return True

    def _take_back(self, *, reject: bool) -> None:
        """Put the records of the transaction back in front of those that wait."""
        waiting = [*(stretch[:3] for stretch in self._sent), *((tp, *rows) for tp, rows in self._rows.items())]
        self._sent, self._rows = [], {}
        for tp, keys, values in waiting:
            excluded = self.exclude[tp.topic](keys, values) if reject else set()
            rows = [i for i in range(len(values)) if i not in excluded]
            self._store(tp, [keys[i] for i in rows], [values[i] for i in rows])

    def _restart(self, error: Exception) -> dict[int, int]:
        """Start a new producer, which aborts the previous transaction, and read the mark.

        A new producer fences off all others, so this first checks that no newer run has written the mark.
        """
        if self.mark.is_foreign():
            raise _fenced(self, error)
        if self._producer is not None:
            self._producer.abandon()
        self._producer = None
        self._start()
        if self.mark.is_foreign():  # it was being written
            raise _fenced(self, error)
        return self.mark.read()

    def _check_topics(self) -> None:
        """Raise ConnectorError if a topic was deleted."""
        source, sinks = self.mark.topic, {name: len(topic.partitions) for name, topic in self.topics.items()}
        deleted = self.brokers.find_deleted(sinks if source is None else sinks | {source: 0})
        if deleted is None:
            return
        way = "create it again and start the run again, which goes on from its checkpoint where it has one"
        if deleted not in sinks:
            way = (
                "what was learned is in the checkpoint or the saved model. If it is recreated, start over with --reset"
            )
        what = f"the topic {deleted!r} {'' if deleted in sinks else 'of the events '}no longer exists"
        what += " or has fewer partitions than before" if sinks.get(deleted, 1) > 1 else ""
        raise ConnectorError(f"{self.name}: results cannot be written: {what}; {way}", "deleted")

    def hurry(self) -> None:
        """Set a short deadline for brokers, because the run is ending."""
        self._deadline = min(self._deadline, time.monotonic() + _GRACE_S)

    def _check_deadline(self) -> None:
        if time.monotonic() > self._deadline:
            after = "; they are written when the run resumes from its checkpoint" if self.mark.topic is not None else ""
            what = "no broker responded, and the run was stopped: results after the last commit are not written"
            raise UnreachableError(f"{self.name}: {what}{after}")

    def close(self) -> None:
        """Discard uncommitted rows and close the producer after the last sink."""
        self._users -= 1
        if self._users or self._producer is None:
            return
        producer, self._producer = self._producer, None
        ending = self._commit or (producer.abort() if self._sent else None)
        if ending is not None:
            ending.wait(max(0.0, min(5.0, self._deadline - time.monotonic())))
        producer.abandon().wait(1.0)


def _fenced(transactions: Transactions, error: Exception) -> ConnectorError:
    fenced = FencedError(
        f"{transactions.name}: fenced off: another run writes with transactional_id={transactions.identity}, so this "
        "one stops; its uncommitted results are dropped. Run one at a time, or use one id for each",
        "fenced",
        option="transactional_id",
    )
    fenced.__cause__ = error
    return fenced
