"""Mark: the offsets of processed events, committed with each transaction."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from connectors.errors import ConnectorError
from connectors.events import Position
from connectors.kafka.clients import Brokers, convert_errors
from connectors.kafka.source import KafkaSource


class Mark:
    """Offsets of the source topic that each transaction commits to a dedicated group.

    Parameters
    ----------
    brokers
        Brokers of the group.
    group
        Name of the group; no other program may write to it.
    source
        Source of the events. None disables the mark.
    trust
        Action if mark and checkpoint differ: check (raise an error), trust (use the mark) or forget (ignore it).
    fresh
        Whether the run starts over and ignores an earlier mark.

    Attributes
    ----------
    committed
        The offsets committed last, by partition.
    """

    def __init__(self, brokers: Brokers, group: str, source: KafkaSource | None, *, trust: str, fresh: bool) -> None:
        self.group, self.committed = group, dict[int, int]()
        self._brokers, self._source, self._trust, self._fresh = brokers, source, trust, fresh
        self._skip: dict[int, int] = {}  # rows of events before these are in the topic already
        self._taken: dict[int, int] = {}  # after the events of the rows taken
        self._target: dict[int, int] = {}  # of the transaction that is being committed
        self._token = uuid.uuid4().hex  # metadata of the offsets: which run wrote them
        self._earlier: set[tuple[int, int, str]] = set()  # partition, offset and metadata at the start
        self._claimed = source is None  # whether this run has written the mark

    @property
    def topic(self) -> str | None:
        """Topic of the source, None if the mark is disabled."""
        return None if self._source is None else self._source.topic

    @property
    def position(self) -> Position:
        """Committed offset of each partition."""
        return {"mark": {str(partition): offset for partition, offset in sorted(self.committed.items())}}

    def read(self) -> dict[int, int]:
        """Read the current offsets of the group."""
        return {partition: found.offset for partition, found in self.committed_offsets().items()}

    def read_at_start(self) -> dict[int, int]:
        """Read the offsets that earlier runs committed."""
        found = self.committed_offsets()
        self._earlier = {(partition, each.offset, each.metadata) for partition, each in found.items()}
        return {partition: each.offset for partition, each in found.items()}

    def committed_offsets(self) -> dict[int, Any]:
        """Read offset and metadata of each partition that the group has committed."""
        if self._source is None:
            return {}
        # A new client each time, because an old one keeps asking the former coordinator of the group.
        with (
            contextlib.closing(self._brokers.admin()) as client,
            convert_errors(self._brokers.name, f"the mark in group {self.group} cannot be read"),
        ):
            offsets = client.list_group_offsets({self.group: None})[self.group]
        return {tp.partition: found for tp, found in offsets.items() if tp.topic == self.topic and found.offset >= 0}

    def check_unmarked(self, read: Callable[[], dict[int, int]]) -> dict[int, int]:
        """Return the mark; a run without its checkpoint refuses one of an earlier run."""
        mark = read()
        if self._source is None or self._fresh or self._trust != "check":
            return mark
        begin = self._source.beginnings
        if beyond := {p: offset for p, offset in mark.items() if offset > begin.get(p, 0)}:
            raise ConnectorError(
                f"{self._brokers.name}: the group {self.group} says that events were answered up to {_shown(beyond)}, "
                "but the checkpoint is missing. Restore the checkpoint; or set mark=trust to learn from "
                "the beginning again and write only the predictions that are not there yet; or start over with --reset "
                "(or mark=forget), which writes predictions of all events again",
                "no checkpoint",
                option="mark",
            )
        return mark

    def begin(self, read: Callable[[], dict[int, int]]) -> None:
        """Start without a checkpoint."""
        mark = self.check_unmarked(read)  # again, because other producers are fenced off now
        if self._source is None:
            return
        if self._trust == "trust":
            self._skip_before(mark)
        else:
            at = self._source.position[self._source.topic]
            self._taken = {int(partition): offset for partition, offset in at.items()}

    def resume(self, position: Position, mark: Mapping[int, int]) -> None:
        """Resume from a checkpoint; rows of events before the mark are dropped."""
        before = {int(partition): int(offset) for partition, offset in position["mark"].items()}
        behind = {p: offset for p, offset in before.items() if mark.get(p, 0) < offset}
        if behind and self._trust != "forget":
            raise ConnectorError(
                f"{self._brokers.name}: the checkpoint is ahead of the mark: events were answered up to "
                f"{_shown(behind)} when it was taken, but the group {self.group} says {_shown(mark) or 'nothing'}. Was "
                "the group reset, did its offsets expire, or is it another cluster? Set mark=forget to go on from the "
                "checkpoint (events after it may then be predicted twice), or start over with --reset",
                "behind",
                option="mark",
            )
        self._skip_before({p: max(offset, mark.get(p, 0)) for p, offset in (dict(mark) | before).items()})

    def _skip_before(self, offsets: dict[int, int]) -> None:
        self.committed, self._taken, self._skip = offsets, dict(offsets), dict(offsets)

    def fresh_rows(self, partitions: Sequence[int], offsets: Sequence[int]) -> list[int] | None:
        """Return the indices of rows that are not in the topic yet, None for all.

        All rows then count as processed.
        """
        places = list(zip(partitions, offsets, strict=True))
        keep = [i for i, (p, offset) in enumerate(places) if offset >= self._skip.get(p, 0)] if self._skip else []
        for partition, offset in places:  # those of rejected events come in no order
            if offset >= self._taken.get(partition, 0):
                self._taken[partition] = offset + 1
        return None if not self._skip or len(keep) == len(places) else keep

    # Transactions ------------------------------------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether the accepted rows move the mark beyond the committed offsets."""
        return not self._claimed or self._taken != self.committed

    def next_offsets(self) -> dict[Any, Any]:
        """Return the offsets of the next commit, which includes all accepted rows.

        These are the offsets of all partitions, so that none expires. There are none if the mark does not move.
        """
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        target = dict(self._taken) if self.is_due else {}
        self._target = dict(self._taken)
        return {TopicPartition(self.topic, p): OffsetAndMetadata(o, self._token, -1) for p, o in target.items()}

    def settle(self) -> None:
        """Record that the transaction was committed."""
        self.committed, self._claimed = self._target, True

    def is_foreign(self) -> bool:
        """Return whether another run has written the mark since this run started."""
        found = self.committed_offsets()
        others = {(p, each.offset, each.metadata) for p, each in found.items() if each.metadata != self._token}
        return any(metadata for _, _, metadata in others - self._earlier)  # tools that reset offsets write none

    def is_reached(self, mark: Mapping[int, int]) -> bool:
        """Return whether the mark shows that an unconfirmed transaction succeeded."""
        return bool(self._target) and mark == self._target != self.committed

    def is_beyond(self, mark: Mapping[int, int]) -> bool:
        """Return whether the mark is beyond the offsets that this run committed."""
        return any(mark.get(p, 0) > offset for p, offset in self.committed.items())

    def loss(self, mark: Mapping[int, int]) -> str:
        """Return an error message if the mark is behind the committed offsets, else ""."""
        behind = {p: offset for p, offset in self.committed.items() if mark.get(p, 0) < offset}
        if not behind:
            return ""
        return (
            f"{self._brokers.name}: events were answered up to {_shown(behind)}, but the group {self.group} says "
            f"{_shown(mark) or 'nothing'}: the group was reset, or the topic of the events was deleted and "
            "recreated. Set mark=forget to resume from the checkpoint, or start over with --reset"
        )


def _shown(mark: Mapping[int, int]) -> str:
    return ", ".join(f"offset {offset} of partition {partition}" for partition, offset in sorted(mark.items()))
