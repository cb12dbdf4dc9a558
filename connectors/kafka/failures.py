"""Classification of transient broker errors, and retries with a timeout."""

from __future__ import annotations

import errno
import logging
import re
import time
from collections.abc import Callable
from typing import TypeVar

from connectors.errors import UnreachableError

T = TypeVar("T")

START_S = 30.0
"""Default of `broker_timeout` before the run has begun."""

_WARN_S = 10.0  # initial time between two warnings
_SAY_SELDOM_S = 300.0  # its maximum
RETRY_S = 0.1  # time between two attempts

PASSING = {
    # Not retriable for the client, but sent by brokers that stop, start or hand over their partitions.
    *("BrokerNotAvailableError", "UnknownBrokerIdError", "StaleControllerEpochError", "StaleBrokerEpochError"),
    *("BrokerIdNotRegisteredError", "NewLeaderElectedError", "TransactionCoordinatorFencedError", "UnknownError"),
}
RENEWED = {
    # Errors of a producer whose state was lost. A new producer starts without it.
    *("InvalidProducerEpochError", "ProducerFencedError", "InvalidTxnStateError", "OutOfOrderSequenceNumberError"),
    *("DuplicateSequenceNumberError", "UnknownProducerIdError", "InvalidProducerIdMappingError", "IllegalStateError"),
    *("TransactionAbortedError", "TransactionAbortableError"),
}
_GIVEN_UP = "not in an active transaction"  # the client ended it after another transient error
_NETWORK = {errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH}
_CLOSING = ("Transport closed for writes", "Failed to find active controller")  # a RuntimeError each

logger = logging.getLogger("connectors.kafka")


def error_names(error: BaseException) -> set[str]:
    """Return the names of an error and of the errors that its message mentions."""
    return {type(error).__name__, *re.findall(r"\w+Error", str(error))}


def is_transient(error: BaseException) -> bool:
    """Return whether an error is transient, such as an unavailable broker."""
    if isinstance(error, OSError):
        return isinstance(error, ConnectionError | TimeoutError) or error.errno in _NETWORK
    if isinstance(error, RuntimeError):
        return any(text in str(error) for text in _CLOSING)
    return _all_are(error, PASSING)


def is_recoverable(error: BaseException) -> bool:
    """Return whether an error is transient, or is resolved by a new producer."""
    return is_transient(error) or _GIVEN_UP in str(error) or _all_are(error, PASSING | RENEWED)


def _all_are(error: BaseException, some: set[str]) -> bool:
    from kafka import errors

    classes = {kind for name in error_names(error) if (kind := getattr(errors, name, None)) is not None}
    classes = classes - {errors.KafkaError} or classes  # it wraps others
    return bool(classes) and all(getattr(kind, "retriable", False) or kind.__name__ in some for kind in classes)


class RetryTimeout:
    """Wait after transient errors and retry until a timeout, with warnings.

    Parameters
    ----------
    seconds
        Maximum waiting time, from the first failure.
    what
        What is waited for, in messages.
    """

    def __init__(self, seconds: float, what: str = "broker") -> None:
        self.seconds, self._what = seconds, what
        self._since: float | None = None
        self._say_at = self._pause = 0.0

    def wait(self, error: UnreachableError, since: float | None = None) -> None:
        """Wait briefly before a retry; raise the error after the timeout.

        `since` is the time of the first failure if the caller has already waited.
        """
        now = time.monotonic()
        if self._since is None:
            self._since, self._say_at = now if since is None else since, now
            self._pause = _WARN_S
        waited = now - self._since
        if waited >= self.seconds:
            raise UnreachableError(f"{error} (after {waited:.0f} s of retries)") from error
        if now >= self._say_at:
            self._say_at = now + self._pause
            self._pause = min(2 * self._pause, _SAY_SELDOM_S)
            logger.warning(
                "%s: no %s available; retrying%s", error, self._what, f" ({waited:.0f} s so far)" if waited >= 1 else ""
            )
        time.sleep(RETRY_S)

    def reset(self, name: str) -> None:
        """Reset the timeout after a success."""
        if self._since is not None:
            logger.warning("%s: a %s is available again; continuing", name, self._what)
            self._since = None

    def retry(self, call: Callable[[], T], check: Callable[[], None] = lambda: None) -> T:
        """Retry a call until it succeeds; `check` runs before each try and may raise."""
        while True:
            check()
            try:
                return call()
            except UnreachableError as error:
                self.wait(error)
