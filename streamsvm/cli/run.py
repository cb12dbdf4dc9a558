"""``streamsvm run`` and ``streamsvm predict``."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TextIO

from streamsvm.cli.terminal import TEMPORARY, complain
from streamsvm.run.config import SINKS, RunConfig
from streamsvm.run.errors import RunError
from streamsvm.signals import HANGUP, end_next_time, ending_signals

if TYPE_CHECKING:
    from streamsvm.run.loop import RunLoop
    from streamsvm.run.report import Report

logger = logging.getLogger(__name__)
STOP_S = 9.0
"""Seconds until the process of a stopped run is ended."""
_WARN_S = 1.0
_timers: list[threading.Timer] = []


def main(config: RunConfig, started: float) -> int:
    """Run and return the exit code."""
    config.validate()
    from streamsvm.run.progress import Progress  # imports the model
    from streamsvm.run.start import Run

    caught: list[int] = []
    with contextlib.ExitStack() as stack:
        bar = [] if config.quiet else [stack.enter_context(contextlib.closing(Progress(sys.stderr, config.log_every)))]
        run = Run(config, bar, started)
        try:
            run.start(lambda loop: _graceful(loop, caught))
        except Exception:
            if not run.failures:
                raise  # the run did not start
    assert run.loop is not None  # otherwise it raised
    return _finish(config, run.loop.report, run.failures, caught)


def _finish(config: RunConfig, report: Report, failures: list[Exception], caught: list[int]) -> int:
    """Print the report and the failures, and return the exit code."""
    try:
        _print_text(config, report)
    except BrokenPipeError as error:
        failures.append(error)
    except OSError as error:
        if HANGUP not in caught:  # otherwise the terminal is gone
            failures.append(RunError(f"report: standard output: cannot be written: {error.strerror or error}"))
    for later in failures[1:]:
        complain(later, 1)
    if failures:
        raise failures[0]
    if report.ended == "stopped":
        return 128 + caught[0]
    if report.metrics.rejected > report.metrics.events:
        return complain(_rejects(report), 3)
    if config.quiet:
        from streamsvm.run.report_text import warnings

        for line in warnings(report, config):
            logger.warning("%s: %s", report.source, line)
    return 0


def _print_text(config: RunConfig, report: Report) -> None:
    from streamsvm.run.report_text import text

    is_taken = any(config.urls[name].path == "-" for name in SINKS if name in config.urls)
    stream = sys.stderr if is_taken else sys.stdout
    if not config.quiet and stream is not None:  # standard output may be closed
        print(_encodable(text(report), stream), file=stream, flush=True)


def _encodable(shown: str, stream: TextIO) -> str:
    """Replace characters that the stream cannot encode."""
    try:
        shown.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return shown.translate({ord("µ"): "u", ord("…"): "..."})
    return shown


def _rejects(report: Report) -> str:
    """Return the message for mostly rejected events, with the first known reason."""
    from streamsvm.run.notices import rejection

    rejected, events = report.metrics.rejected, report.metrics.events
    first = "".join(f"; the first one: {rejection(one)}" for one in report.rejects.first[:1])
    return f"more than half of all events were rejected, {rejected:,} of {rejected + events:,}{first}"


@contextlib.contextmanager
def _graceful(loop: RunLoop, caught: list[int]) -> Iterator[None]:
    """End the run after the current batch on a signal, by a deadline.

    A second signal kills the process, except SIGHUP: a closed terminal may send it twice.
    """

    def handle(number: int, _: object) -> None:
        end_next_time()
        caught.append(number)
        end_within(STOP_S, number, lambda: loop.waits_for)
        loop.stop()

    before = {number: signal.signal(number, handle) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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

    def end(*, tells: bool) -> None:
        waited = waits_for()
        with contextlib.suppress(OSError, ValueError):
            if waited and tells:
                print(
                    f"streamsvm: error: {signal.Signals(number).name}: the run waits for the {waited} and did not end "
                    f"within {seconds:g} s; results after the last commit or checkpoint are lost. Start the run again",
                    file=sys.stderr,
                    flush=True,
                )
            elif tells:
                sys.stdout.flush()
        os._exit(TEMPORARY if waited == "brokers" else 128 + number)

    # The reader of a pipe may have stopped. Python 3.12 starts no thread while it waits for others at exit.
    for delay, tells in ((seconds, True), (seconds + _WARN_S, False)):
        timer = threading.Timer(delay, end, kwargs={"tells": tells})
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
