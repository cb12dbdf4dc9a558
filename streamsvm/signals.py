"""Signals that end a command."""

from __future__ import annotations

import signal

HANGUP = getattr(signal, "SIGHUP", None)


def ending_signals() -> list[signal.Signals]:
    """Return the signals that end a command; under `nohup`, SIGHUP is ignored."""
    found = [signal.SIGINT, signal.SIGTERM]
    if HANGUP is not None and signal.getsignal(HANGUP) != signal.SIG_IGN:
        found.append(signal.Signals(HANGUP))
    return found


def end_next_time() -> None:
    """Let the next signal kill, except SIGHUP: a closed terminal may send it twice."""
    for each in ending_signals():
        signal.signal(each, signal.SIG_IGN if each == HANGUP else signal.SIG_DFL)
