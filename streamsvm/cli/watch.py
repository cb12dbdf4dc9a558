"""``streamsvm watch``: serve the page of a run, from its URL or checkpoints."""

from __future__ import annotations

import signal
from typing import NoReturn

from streamsvm.cli.commands import WatchCommand
from streamsvm.run.converters import read_token
from streamsvm.signals import ending_signals


def main(options: WatchCommand, _started: float) -> int:
    """Serve the page until interrupted."""
    from streamsvm.run.page.watch import watch

    def leave(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    for number in ending_signals():
        signal.signal(number, leave)
    watch(options.place, options.page, read_token(options.page_token_file, "--page-token-file") or None)
    return 0
