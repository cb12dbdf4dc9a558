"""Transactions of records and the mark: what is in one is there as a whole, once, or not at all."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from connectors.errors import ConnectorError, UnreachableError
from connectors.events import Position
from connectors.kafka.clients import (
    Watch,
    admin,
    connect,
    describe,
    import_kafka,
    largest_record,
    logger,
    talking,
)
from connectors.kafka.failures import START_S, Patience, kinds, passes, passes_anew
from connectors.kafka.packing import can_pack, pack, send_packed, stretches
from connectors.kafka.source import KafkaSource

_AT_ONCE = 1 << 18  # bytes of records that are sent without waiting for more
_MOST_REPAIRS = 20  # one after the other, of what no broker was away for
_LOOK_S = 0.1  # between two looks whether to go on waiting
_ASK_S = 3.0  # of a commit, between two questions whether its topics are still there
_SAY_S = 10.0  # between two lines that say that a broker is waited for
_GRACE_S = 5.0  # for brokers to answer once the run is to end
_LEAVE_S = 60.0  # for a producer that is given up to notice it
_STUCK_S = 30.0  # a commit that takes longer is given up: a client may wait for what a broker that died had promised

Keys = list[bytes | None]
Values = list[bytes]

Stretch = tuple[Any, Keys, Values, int]
"""A partition, keys and values of records that are one batch, and their time."""


class Transactions:
    """The transactional producer of one or more sinks.

    Rows wait in a transaction until `commit`, which may go on while the next rows already come; these then wait for
    the next. A transaction that fails because a broker was away is repeated with the same rows by a new producer,
    unless the mark says that it did succeed.

    Parameters
    ----------
    name
        Of the sink, for messages.
    servers, client
        Brokers, and options of the client.
    transactional_id
        Who writes: a newer producer with the same fences this one off.
    group
        The group whose offsets are the mark.
    interval_s
        How old a row may become before it is committed.
    source
        Whose events the mark is about; None keeps no mark.
    trust
        What to do where mark and checkpoint do not fit: check (stop), trust the mark, or forget it.
    fresh
        Whether a mark that is there is of no account, as the run starts over.
    patience_s
        How long brokers that are away, or pass their work on, are waited for; None for ever, and less at the start.
    """

    def __init__(
        self,
        name: str,
        servers: list[str],
        client: Mapping[str, Any],
        *,
        transactional_id: str,
        group: str,
        interval_s: float,
        source: KafkaSource | None,
        trust: str,
        fresh: bool,
        patience_s: float | None,
    ) -> None:
        self.name, self.servers, self.client = name, servers, dict(client)
        self.identity, self._group, self._interval_s = transactional_id, group, interval_s
        self._source, self._trust, self._fresh = source, trust, fresh
        self.limits: dict[str, int] = {}
        """The most bytes a record may have, by topic."""
        self.fit: dict[str, Callable[[Keys, Values], None]] = {}
        """What shortens records that are longer than that, in place, by topic."""
        self._users = 1
        self._producer: Any = None
        self._packs = False
        self._skip: dict[int, int] = {}
        self._marks: dict[int, int] = {}  # of the rows that were taken
        self._target: dict[int, int] = {}  # of the transaction that is being committed
        self._committed: dict[int, int] = {}
        self._token = uuid.uuid4().hex  # is kept beside the mark and tells which run wrote it
        self._claimed = source is None  # whether this run has written the mark
        self._rows: dict[Any, tuple[Keys, Values]] = {}  # keys and values that wait to be sent
        self._size = 0  # of those values
        self._sent: list[Stretch] = []
        self._since: float | None = None  # when the oldest row came that is not being committed yet
        self._began = 0.0
        self._commit: _Call | None = None
        self._failed: Exception | None = None  # what went wrong in the transaction before its end
        self._deadline = float("inf")  # for brokers to answer
        self.starting = Patience(START_S if patience_s is None else patience_s)
        self._patience = Patience(float("inf") if patience_s is None else patience_s)
        self._repairs = 0  # since the last transaction that succeeded
        self._watch = Watch(self.name, self.servers, self.client)

    def join(self) -> Transactions:
        """One more sink uses these."""
        self._users += 1
        return self

    # The mark ----------------------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """Up to where each partition's events have been answered, durably."""
        return {"mark": {str(partition): offset for partition, offset in sorted(self._committed.items())}}

    def _read_mark(self) -> dict[int, int]:
        return {partition: found.offset for partition, found in self._read_offsets().items()}

    def _read_offsets(self) -> dict[int, Any]:
        """The mark with its metadata, by partition."""
        assert self._source is not None
        # By a new client each time: one keeps asking the broker that once was responsible for a group.
        with (
            contextlib.closing(admin(self.name, self.servers, self.client)) as client,
            talking(self.name, f"the mark in group {self._group} cannot be read"),
        ):
            offsets = client.list_group_offsets({self._group: None})[self._group]
        topic = self._source.topic
        return {tp.partition: found for tp, found in offsets.items() if tp.topic == topic and found.offset >= 0}

    def _mark_at_start(self) -> dict[int, int]:
        return self.starting.ask(self._read_mark, self._check_patience)

    def check_unmarked(self) -> None:
        """Before a run without a checkpoint: refuse where an earlier one has left a mark."""
        if self._fresh or self._trust != "check":
            return
        assert self._source is not None
        begin = self._source.beginnings
        if mark := {p: offset for p, offset in self._mark_at_start().items() if offset > begin.get(p, 0)}:
            raise ConnectorError(
                f"{self.name}: the group {self._group} says that events were answered up to {_shown(mark)}, but there "
                "is no checkpoint to go on from. Bring the checkpoint back; or say mark=trust to learn from the "
                "beginning again and write only the predictions that are not there yet; or start over with --reset "
                "(or mark=forget), which writes predictions of all events again"
            )

    def rewind(self, position: Position) -> None:
        """Go on from a checkpoint: the rows of events before the mark are there, and will be dropped."""
        if self._producer is not None:
            return  # another sink of the same transactions has done it
        if self._source is None:
            self.open()
            return
        before = {int(partition): int(offset) for partition, offset in position["mark"].items()}
        self.starting.ask(self._start, self._check_patience)
        mark = self._mark_at_start()
        behind = {p: offset for p, offset in before.items() if mark.get(p, 0) < offset}
        if behind and self._trust != "forget":
            raise ConnectorError(
                f"{self.name}: the checkpoint is ahead of the mark: events were answered up to {_shown(behind)} when "
                f"it was taken, but the group {self._group} says {_shown(mark) or 'nothing'}. Was the group reset, did "
                "its offsets expire, or is it another cluster? Say mark=forget to go on from the checkpoint (events "
                "after it may then be predicted twice), or start over with --reset"
            )
        self._committed = {p: max(offset, mark.get(p, 0)) for p, offset in (mark | before).items()}
        self._marks, self._skip = dict(self._committed), dict(self._committed)
        self.starting.reward(self.name)
        self.commit()  # an older run that goes on finds in the mark that this one has taken over

    def open(self) -> None:
        """Begin: fence off what wrote before, and put the mark where the source stands."""
        if self._producer is not None:
            return
        self.starting.ask(self._start, self._check_patience)
        self.starting.reward(self.name)
        if self._source is None:
            return
        self.check_unmarked()  # again, as nobody else can write any more
        if self._trust == "trust":
            self._committed = self._mark_at_start()
            self._marks, self._skip = dict(self._committed), dict(self._committed)
        else:
            at = self._source.position[self._source.topic]
            self._marks = {int(partition): offset for partition, offset in at.items()}

    def fresh_rows(self, partitions: Sequence[int], offsets: Sequence[int]) -> list[int] | None:
        """The numbers of the rows that are not there yet; None for all. They count as answered from now on."""
        skip, keep = self._skip, None
        if skip:
            keep = [i for i, (p, o) in enumerate(zip(partitions, offsets, strict=True)) if o >= skip.get(p, 0)]
            if len(keep) == len(partitions):
                keep = None
        for partition, offset in zip(partitions, offsets, strict=True):  # those set aside come in no order
            if offset >= self._marks.get(partition, 0):
                self._marks[partition] = offset + 1
        return keep

    # Records -----------------------------------------------------------------------------------------------------

    def add(self, topic: str, partition: int, keys: Sequence[bytes | None], values: Sequence[bytes]) -> None:
        """Take records for a partition; they are sent when there are many, or the transaction ends.

        A producer sends one batch of a partition after the other, each when the one before is answered for.
        """
        from kafka import TopicPartition

        if self._since is None:
            self._since = time.monotonic()
        rows = self._rows.setdefault(TopicPartition(topic, partition), ([], []))
        rows[0].extend(keys)
        rows[1].extend(values)
        self._size += sum(map(len, values))
        if self._commit is None and self._size >= _AT_ONCE:
            self._ship()

    @property
    def largest(self) -> int:
        """The most bytes a record may have as far as the client is concerned."""
        return int(self.client.get("max_request_size", 1 << 20)) - 1024

    def _ship(self) -> None:
        """Hand what waits to the producer, in the transaction that is open."""
        now = int(time.time() * 1000)
        rows, self._rows, self._size = self._rows, {}, 0
        for tp, (keys, values) in rows.items():
            for stretch in self._cut(tp, keys, values, now):
                if not self._sent:
                    self._begin()
                self._sent.append(stretch)
                self._send(stretch)

    def _cut(self, tp: Any, keys: Keys, values: Values, now: int) -> Iterator[Stretch]:
        for start, end in stretches(keys, values, min(_AT_ONCE, self.limits.get(tp.topic, _AT_ONCE))):
            yield tp, keys[start:end], values[start:end], now

    def _send(self, stretch: Stretch) -> None:
        tp, keys, values, now = stretch
        if self._failed is not None:
            return  # the whole transaction will be repeated
        try:
            if self._packs:
                send_packed(self._producer, tp, pack(keys, values), len(values), now)
            else:
                for key, value in zip(keys, values, strict=True):
                    self._producer.send(tp.topic, value, key, partition=tp.partition, timestamp_ms=now)
        except Exception as error:  # whatever it is, it is dealt with where the transaction ends
            self._failed = error

    # Commit ------------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Commit in the background what has waited for long enough."""
        if self._commit is not None and self._commit.done:
            self._end()
        if self._commit is None and self._since is not None and time.monotonic() - self._since >= self._interval_s:
            self._begin_commit()

    def commit(self) -> None:
        """Commit all rows taken, and wait until that is done."""
        self.open()
        while self._commit is not None or self._since is not None or self._is_mark_due(self._marks):
            if self._commit is None:
                self._begin_commit()
            self._end()

    def _is_mark_due(self, marks: Mapping[int, int]) -> bool:
        return not self._claimed or marks != self._committed

    def _begin(self) -> None:
        self._began = time.monotonic()
        try:
            self._producer.begin_transaction()
        except Exception as error:
            self._repair(error)
            self._producer.begin_transaction()

    def _begin_commit(self) -> None:
        self._ship()
        if not self._sent:
            self._begin()
        self._target, self._since = dict(self._marks), None
        self._commit = _Call(self._finish, f"{self.identity} commits")

    def _finish(self) -> None:
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        producer = self._producer  # this one to the end, though another may have taken its place by then
        if self._failed is not None:
            raise self._failed
        if self._source is not None and self._is_mark_due(self._target):
            topic = self._source.topic
            # All of them, or those of partitions where nothing happens would expire.
            marks = {TopicPartition(topic, p): OffsetAndMetadata(o, self._token, -1) for p, o in self._target.items()}
            if marks:
                producer.send_offsets_to_transaction(marks, self._group)
        producer.commit_transaction()

    def _end(self) -> None:
        """Wait for the commit, and repair it if it failed."""
        assert self._commit is not None
        from kafka.errors import KafkaTimeoutError

        call, since = self._commit, time.monotonic()
        asked = since
        while not call.wait(_LOOK_S) and time.monotonic() - since < _STUCK_S and self._refusal is None:
            self._check_patience()
            if time.monotonic() - asked > _ASK_S and not self._is_hurried:
                self._check_there()  # the client itself would ask for ever
                asked = time.monotonic()
            if time.monotonic() - since > min(_SAY_S, self._patience.seconds):
                self._patience.bear(UnreachableError(f"{self.name}: a commit is not answered"), since)
        try:
            if not call.done and self._refusal is not None:
                raise self._refusal
            if not call.done:
                raise KafkaTimeoutError(f"a commit did not end in {_STUCK_S:g} s")
            call.result()
        except Exception as error:
            self._repair(error)
            self._began = time.monotonic()
            if self._sent or self._is_mark_due(self._target):
                self._again()
                return
        self._committed, self._sent, self._commit, self._claimed = self._target, [], None, True
        self._repairs = 0
        self._patience.reward(self.name)

    @property
    def _refusal(self) -> Exception | None:
        """What a broker said against the transaction: the client goes on waiting for its end none the less."""
        manager = getattr(self._producer, "_transaction_manager", None)
        return manager.last_error if manager is not None and manager.has_error() else None

    def _again(self) -> None:
        """Repeat the transaction with the new producer."""
        self._producer.begin_transaction()
        for stretch in self._sent:
            self._send(stretch)
        self._commit = _Call(self._finish, f"{self.identity} commits again")
        self._end()

    # When a broker was away --------------------------------------------------------------------------------------

    def _repair(self, error: Exception) -> None:
        """A new producer in the place of one that failed; after it, `_sent` holds what must be sent again."""
        self._check_fenced(error)
        too_long = bool(kinds(error) & _TOO_LONG)
        if not too_long and not passes_anew(error):
            raise ConnectorError(f"{self.name}: results cannot be written: {describe(error)}") from error
        if passes(error):
            self._patience.bear(UnreachableError(f"{self.name}: results cannot be written: {describe(error)}"))
        else:
            self._repairs += 1
            if self._repairs > _MOST_REPAIRS:
                raise ConnectorError(f"{self.name}: results cannot be written at all: {describe(error)}") from error
            logger.warning("%s: a transaction failed (%s): repeating it", self.name, describe(error))
            time.sleep(min(5.0, 0.1 * (self._repairs - 1)))
        self._check_patience()
        if not self._is_hurried:
            self._check_there()
        mark = self._patience.ask(functools.partial(self._begin_anew, error), self._check_patience)
        if mark is not None and self._target and mark == self._target != self._committed:
            self._sent, self._committed = [], self._target  # it had succeeded, but nobody could say so
        elif mark is not None:
            self._check_mark(mark, error)
        if too_long:
            self._refit()

    def _begin_anew(self, error: Exception) -> dict[int, int] | None:
        """A new producer, after which what the one before had begun has ended; and the mark.

        A new producer fences off whoever else writes, so the mark is read before: a newer run goes on.
        """
        if self._source is not None and self._claimed:
            found = self._read_offsets()
            if {found[p].metadata or "" for p in self._committed.keys() & found.keys()} - {self._token, ""}:
                raise self._fenced(error)
        self._drop_producer()
        self._start()
        return self._read_mark() if self._source is not None else None

    def _check_mark(self, mark: Mapping[int, int], error: Exception) -> None:
        """Stop where the mark is not where this run has put it."""
        if any(mark.get(p, 0) > offset for p, offset in self._committed.items()):
            raise self._fenced(error)
        if behind := {p: offset for p, offset in self._committed.items() if mark.get(p, 0) < offset}:
            self._check_there()
            raise ConnectorError(
                f"{self.name}: events were answered up to {_shown(behind)}, but the group {self._group} says "
                f"{_shown(mark) or 'nothing'}: the group was reset, or the topic of the events was deleted and made "
                "anew. Say mark=forget to go on from the checkpoint, or start over with --reset"
            ) from error

    def _check_there(self) -> None:
        """Stop where a topic was deleted."""
        source = None if self._source is None else self._source.topic
        gone = self._watch.gone(self.limits if source is None else [*self.limits, source])
        if gone is None:
            return
        if gone == source and gone not in self.limits:
            raise ConnectorError(
                f"{self.name}: results cannot be written, as the topic of the events, {gone!r}, is there no more; what "
                "was learned is in the checkpoint or the saved model. Where it is made anew, start over with --reset"
            )
        raise ConnectorError(
            f"{self.name}: results cannot be written: the topic {gone!r} is there no more; create it again and "
            "start the run again, which goes on from its checkpoint where it has one"
        )

    def _refit(self) -> None:
        """Shorten what waits or was sent to what the topics take now, which is less than they said at first."""
        with contextlib.closing(admin(self.name, self.servers, self.client)) as client:
            found = {topic: largest_record(client, topic) for topic in self.limits}
        less = {topic: limit for topic, limit in found.items() if limit is not None and limit < self.limits[topic]}
        # Where that may not be asked, or is no answer, half as much is tried.
        self.limits |= less or {topic: limit // 2 for topic, limit in self.limits.items()}
        for topic in less or self.limits:
            most = self.limits[topic]
            logger.warning("%s: the topic %s takes less than at first: now %d bytes a record", self.name, topic, most)
        for tp, (keys, values) in self._rows.items():
            self.fit[tp.topic](keys, values)
        sent, self._sent = self._sent, []
        for tp, keys, values, now in sent:
            self.fit[tp.topic](keys, values)
            self._sent += self._cut(tp, keys, values, now)

    def hurry(self) -> None:
        """The run is to end: brokers that do not answer are given up soon."""
        self._deadline = min(self._deadline, time.monotonic() + _GRACE_S)

    @property
    def _is_hurried(self) -> bool:
        return self._deadline < float("inf")

    def _check_patience(self) -> None:
        if time.monotonic() > self._deadline:
            after = "; they will be made when the run goes on from its checkpoint" if self._source is not None else ""
            raise UnreachableError(
                f"{self.name}: no broker answered, and the run was to end: results after the last commit are not "
                f"written{after}"
            )

    def _check_fenced(self, error: Exception) -> None:
        """Fenced, and not because a transaction took longer than brokers allow: another one has taken over."""
        timed_out = time.monotonic() - self._began > self.client.get("transaction_timeout_ms", 60_000) / 2000
        if kinds(error) & {"ProducerFencedError", "InvalidProducerEpochError"} and not timed_out:
            raise self._fenced(error)

    def _fenced(self, error: Exception) -> ConnectorError:
        fenced = ConnectorError(
            f"{self.name}: fenced off: another run writes with transactional_id={self.identity}, so this one, the "
            "older, stops; what it had not committed is dropped. Run one at a time, or give each its own id"
        )
        fenced.__cause__ = error
        return fenced

    # The producer ------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        kafka = import_kafka()
        settings: dict[str, Any] = {"max_block_ms": 20_000, "metrics_enabled": False, "batch_size": 1 << 17}
        # A broker ends a transaction a few milliseconds after it says so, and has the next one wait for that.
        settings |= {"retry_backoff_ms": 5, **self.client, "transactional_id": self.identity}
        self._failed = None
        producer = connect(self.name, self.servers, kafka.KafkaProducer, settings)
        try:
            with talking(self.name, f"transactions as {self.identity} cannot be begun", passes_anew):
                producer.init_transactions()
        except BaseException:
            _leave(producer)
            raise
        self._producer, self._packs = producer, can_pack(producer)

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            _leave(producer)

    def close(self) -> None:
        """Drop what is not committed, and leave the brokers, once all sinks have."""
        self._users -= 1
        if self._users or self._producer is None:
            return
        producer, self._producer = self._producer, None
        wait_s = max(0.0, min(5.0, self._deadline - time.monotonic()))
        with contextlib.suppress(Exception):
            if self._commit is not None:
                self._commit.wait(wait_s)
            elif self._sent:
                _Call(producer.abort_transaction, "abort").wait(wait_s)
        _leave(producer).wait(1.0)


class _Call:
    """A call in a thread of its own, which the end of the process does not wait for."""

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
        return self._ended.is_set()

    def wait(self, seconds: float) -> bool:
        return self._ended.wait(seconds)

    def result(self) -> None:
        """What it raised."""
        if self._error is not None:
            raise self._error


def _leave(producer: Any) -> _Call:
    """End a producer with what it has in hand, in the background.

    To be closed, it would first send its records; where it cannot, as to a topic that was deleted, kafka-python 3.0.12
    gives up closing it, and it goes on for ever.
    """
    producer._sender.force_close()
    return _Call(lambda: _end(producer), "a producer ends")


def _end(producer: Any) -> None:
    from kafka.errors import KafkaConnectionError

    producer._sender.join(_LEAVE_S)  # it may be waiting for a broker
    with contextlib.suppress(Exception):
        producer.close(timeout=0)
    # Whoever waits for the end of its transaction would do so for ever.
    producer._transaction_manager.authentication_failed(KafkaConnectionError("the producer was closed"))


_TOO_LONG = {"MessageSizeTooLargeError", "RecordListTooLargeError"}


def _shown(mark: Mapping[int, int]) -> str:
    return ", ".join(f"offset {offset} of partition {partition}" for partition, offset in sorted(mark.items()))
