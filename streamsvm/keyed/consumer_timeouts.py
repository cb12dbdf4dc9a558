"""Limited times of the calls of a consumer."""

from __future__ import annotations

import logging
from typing import Any

from connectors.kafka.producer import BackgroundCall

CLOSE_S = 20.0
"""Time for a consumer to close, and for transactions of its worker to end."""

logger = logging.getLogger("streamsvm.keyed")


def bound_calls(consumer: Any, group: str, poll_s: float) -> None:
    """Let a consumer close within `CLOSE_S` and poll for at most `poll_s` seconds.

    librdkafka never closes a consumer after a fatal error, such as FENCED_INSTANCE_ID. The error would not be reported.
    While the engine restores states, it notices their end only after a poll without records, for which it waits 1 s.

    Parameters
    ----------
    consumer
        The consumer, whose methods `close` and `poll` are replaced.
    group
        Its consumer group, for messages.
    poll_s
        Maximum time of a poll in seconds.
    """
    close, poll = consumer.close, consumer.poll

    def close_in_time() -> None:
        call = BackgroundCall(close, "closing the consumer")
        if call.wait(CLOSE_S):
            call.result()
        else:
            logger.warning("consumer group %s: the client did not close within %g s; leaving it", group, CLOSE_S)

    consumer.close = close_in_time
    consumer.poll = lambda timeout=None: poll(poll_s if timeout is None else min(timeout, poll_s))
