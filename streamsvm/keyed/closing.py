"""Closing of a consumer within a limited time."""

from __future__ import annotations

import logging
from typing import Any

from connectors.kafka.producer import BackgroundCall

CLOSE_S = 20.0
"""Time for a consumer to close; transactions of the worker end within this time, too."""

logger = logging.getLogger("streamsvm.keyed")


def bound_close(consumer: Any, group: str) -> None:
    """Let a consumer close within `CLOSE_S`, even if its client does not.

    librdkafka never closes a consumer after a fatal error, such as FENCED_INSTANCE_ID. The error would not be reported.

    Parameters
    ----------
    consumer
        The consumer, whose method `close` is replaced.
    group
        Its consumer group, for messages.
    """
    close = consumer.close

    def close_in_time() -> None:
        call = BackgroundCall(close, "closing the consumer")
        if not call.wait(CLOSE_S):
            logger.warning("consumer group %s: the client did not close within %g s; leaving it", group, CLOSE_S)
        call.result()

    consumer.close = close_in_time
