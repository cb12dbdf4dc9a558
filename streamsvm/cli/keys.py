"""The options of `streamsvm per-key`."""

from __future__ import annotations

from dataclasses import dataclass

from streamsvm.run.values import Span


@dataclass(kw_only=True, eq=False, repr=False)
class KeyOptions:
    r"""A model for each key.

    Each customer, machine or sensor has a model of its own, which predicts its events and learns from them. The
    workers of a consumer group share the partitions of a Kafka topic through Quix Streams (extra `quix`). Each event
    is predicted exactly once, also where workers fail or join.

    Parameters
    ----------
    field : FIELD
        The field of an event with its key, which is also the key in Kafka.
    consumer_group : NAME
        The consumer group of the workers; the state of all keys belongs to it.
    repartition
        The topic has other keys in Kafka: send events through a topic that is keyed by --field.
    prior_model : FILE
        A model of all keys that votes beside each key's own: a saved model, or learn for one that each worker learns
        from its events.
    key_ttl : TIME
        A key without events for this long in event time, as 90d, starts over; after twice that it is removed.
    """

    field: str | None = None
    consumer_group: str | None = None
    repartition: bool = False
    prior_model: str | None = None
    key_ttl: Span | None = None


TAKEN = frozenset(
    (
        *("field", "consumer_group", "repartition", "prior_model", "key_ttl", "label_source", "join", "label_timeout"),
        *("source", "label", "time", "time_unit", "time_format", "ignore", "at_end"),
        *("model", "params", "out", "dead_letter", "checkpoint", "checkpoint_every", "metrics_port", "quiet", "config"),
    )
)
"""The fields that `streamsvm per-key` takes."""
