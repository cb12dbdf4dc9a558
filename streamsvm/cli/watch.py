"""``streamsvm watch``: serve a page of a run on another machine or from its checkpoints."""

from __future__ import annotations

import os
import signal
from typing import Any, NoReturn

from streamsvm.cli.terminal import logged
from streamsvm.run.values import converted, read_token


def main(given: dict[str, Any], _started: float) -> NoReturn:
    """Serve the page until interrupted."""
    from streamsvm.run.page.watch import watch

    def leave(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)
    place, page = converted("DIR|URL", "str", given["place"]), converted("--page", "str", given.get("page", "8080"))
    path = given.get("page_token_file")
    token = os.environ.get("STREAMSVM_PAGE_TOKEN") if path is None else read_token(path, "--page-token-file")
    with logged(given.get("quiet", False)):
        watch(place, page, token or None)
