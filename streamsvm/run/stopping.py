"""The end of a run that was asked to stop, whatever it waits for."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

STOP_S = 9.0
"""How long a run that was asked to stop may take, until the process ends as if it were killed."""

_BROKERS_AWAY = 75  # as `os.EX_TEMPFAIL`, which not all systems have

_timers: list[threading.Timer] = []


def end_within(seconds: float, number: int, waits_for: Callable[[], str]) -> None:
    """End the process at a deadline. What has not been done by then stays undone, as after SIGKILL.

    The exit code is 75 where brokers are waited for, else 128 plus the number of the signal.

    Parameters
    ----------
    seconds
        From now to the deadline.
    number
        The signal that asked the run to stop.
    waits_for
        Asked at the deadline: "brokers", another word, or an empty text where the results are complete.
    """

    def end() -> None:
        waited = waits_for()
        with contextlib.suppress(OSError, ValueError):
            if waited:
                print(
                    f"streamsvm: error: {signal.Signals(number).name}: the run waits for the {waited} and did not end "
                    f"within {seconds:g} s; results after the last commit or checkpoint are not kept. Start it again",
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
    """Cancel deadlines at the end: the process goes on after the run."""
    try:
        yield
    finally:
        while _timers:
            _timers.pop().cancel()
