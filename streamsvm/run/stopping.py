"""Deadline for the end of a stopped run."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

STOP_S = 9.0
"""Seconds until the process of a stopped run is ended."""

_BROKERS_AWAY = 75  # equals `os.EX_TEMPFAIL`, which some systems lack

_timers: list[threading.Timer] = []


def end_within(seconds: float, number: int, waits_for: Callable[[], str]) -> None:
    """End the process at a deadline; unfinished work is lost, as after SIGKILL.

    The exit code is 75 if the run waits for brokers, else 128 plus the number of the signal.

    Parameters
    ----------
    seconds
        Seconds from now to the deadline.
    number
        Number of the signal.
    waits_for
        Called at the deadline. Returns "brokers", another word, or an empty string if the results are complete.
    """

    def end() -> None:
        waited = waits_for()
        with contextlib.suppress(OSError, ValueError):
            if waited:
                print(
                    f"streamsvm: error: {signal.Signals(number).name}: the run waits for the {waited} and did not end "
                    f"within {seconds:g} s; results after the last commit or checkpoint are lost. Start the run again",
                    file=sys.stderr,
                    flush=True,
                )
            else:
                sys.stdout.flush()
        os._exit(_BROKERS_AWAY if waited == "brokers" else 128 + number)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    _timers.append(timer)


@contextlib.contextmanager
def forgetting_deadlines() -> Iterator[None]:
    """Cancel deadlines at the end of the context, because the process continues."""
    try:
        yield
    finally:
        while _timers:
            _timers.pop().cancel()
