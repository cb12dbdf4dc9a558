"""The options of workers that have a model for each key."""

from __future__ import annotations

from dataclasses import dataclass

from streamsvm.run.config import Span


@dataclass(kw_only=True, eq=False, repr=False)
class KeyOptions:
    r"""A model for each key.

    Each customer, machine or sensor has a model of its own, which predicts its events and learns from them. Started
    on as many machines as one likes: the workers of a group share the partitions of a Kafka topic, by Quix Streams
    (extra `quix`), and each event is predicted exactly once whoever of them dies or comes.

    Parameters
    ----------
    field : FIELD
        The field of an event with its key, which is that in Kafka too.
    group : NAME
        The consumer group of the workers, which the state of all keys belongs to.
    repartition
        The topic has other keys in Kafka: send events through a topic in which they have theirs.
    parent : FILE
        A model of all keys that votes beside each key's own: a saved model, or learn for one that each worker learns
        from its events.
    forget_after : TIME
        A key without events for this long in event time, as 90d, starts over; after twice that it is removed.
    """

    field: str | None = None
    group: str | None = None
    repartition: bool = False
    parent: str | None = None
    forget_after: Span | None = None


TAKEN = frozenset(
    (
        *("field", "group", "repartition", "parent", "forget_after", "label_source", "join", "wait"),
        *("source", "label", "time", "time_unit", "time_format", "ignore", "until_end"),
        *("model", "effort", "params", "out", "rejected"),
        *("checkpoint", "checkpoint_every", "checkpoint_seconds", "metrics_port", "quiet", "config"),
    )
)
"""The options of `streamsvm per-key`."""
