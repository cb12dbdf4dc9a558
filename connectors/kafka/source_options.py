"""Options of a Kafka source."""

from __future__ import annotations

from typing import Any

from connectors.kafka.clients import client_options, import_kafka
from connectors.kafka.failures import START_S
from connectors.kafka.reader import ArrivalOrder, TimeOrder
from connectors.kafka.registered import value_format
from connectors.options import Options

_LEAST_FETCH = 1 << 14  # bytes per partition and fetch, for any number of partitions


class SourceOptions:
    """Options of a source, checked; see `KafkaSource`.

    Parameters
    ----------
    options
        The options as given.
    topic
        Name of the topic.
    """

    def __init__(self, options: Options, topic: str) -> None:
        defaults = import_kafka().KafkaConsumer.DEFAULT_CONFIG
        self.values = value_format(options)
        self.batch_size = options.integer("batch_size", 1024, 1)
        self.max_held_bytes = options.integer("max_held_bytes", 64 << 20, 1)
        self.batch_bytes = self.max_held_bytes // 8
        orders = {"timestamp": TimeOrder, "arrival": ArrivalOrder}
        self.order = orders[options.one_of("order", orders) or "timestamp"]
        self.max_idle = options.seconds("max_idle", 0.02)
        self.until_end = options.one_of("at_end", ("stop", "wait")) == "stop"
        self.from_end = options.one_of("auto_offset_reset", ("earliest", "latest")) == "latest"
        self.skip_gap = options.one_of("gap", ("stop", "skip")) == "skip"
        self.accept_recreated = options.one_of("recreated", ("stop", "accept")) == "accept"
        self.wait_for_topic = options.one_of("absent", ("stop", "wait")) == "wait"
        self.timeout_s = options.seconds("broker_timeout", START_S) if options.has("broker_timeout") else None
        self.client: dict[str, Any] = {
            "isolation_level": "read_committed",
            "max_poll_records": 4000,
            "metrics_enabled": False,
            "fetch_max_wait_ms": 100,  # a broker answers nothing else during this time
        }
        if self.timeout_s is not None:
            self.client["bootstrap_timeout_ms"] = self.timeout_s * 1000
        self.client |= client_options(
            options, {key: value for key, value in defaults.items() if key != "auto_offset_reset"}
        )
        self.group = str(self.client.pop("group_id", f"streamsvm.{topic}") or "")
        self.client |= {"enable_auto_commit": False, "auto_offset_reset": "none", "allow_auto_create_topics": False}
        options.finish()

    def fetch_limits(self, partitions: int) -> dict[str, Any]:
        """Return limits of fetches for a number of partitions, overridden by options."""
        return {
            "fetch_max_bytes": max(_LEAST_FETCH, self.batch_bytes),
            "max_partition_fetch_bytes": max(_LEAST_FETCH, min(1 << 20, self.batch_bytes // max(1, partitions))),
        } | self.client
