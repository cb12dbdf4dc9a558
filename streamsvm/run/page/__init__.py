"""A page that shows a stream as it runs, served by the process that runs it, or by one that looks on.

`Board` keeps what there is to see, `Server` serves it, `page.html` draws it. uPlot 1.6.32 (MIT, see `uPlot.LICENSE`)
draws the lines.
"""

from __future__ import annotations

import logging

from streamsvm.run.errors import SetupError
from streamsvm.run.page.board import Board
from streamsvm.run.page.server import Server
from streamsvm.run.prometheus import Figures
from streamsvm.run.standing import Report

logger = logging.getLogger("streamsvm.run")


class Page:
    """An observer of a run that serves a page of it.

    Parameters
    ----------
    place, token
        As `Server` has them.

    Attributes
    ----------
    server
        What serves it; `server.url` is where.
    """

    def __init__(self, place: str, token: str | None = None) -> None:
        self._board, self._figures = Board(), figures()
        self.server = Server(self._board, place, token, lambda: text_of(self._figures))
        logger.info("the page: %s", self.server.url)

    def __call__(self, report: Report, fraction: float | None) -> None:
        """Take note of how the run stands."""
        self._board(report, fraction)
        if isinstance(self._figures, Figures):
            self._figures(report, fraction)

    def close(self) -> None:
        """Show how the run ended, and serve no more."""
        self._board.close()
        self.server.close()


def figures() -> Figures | SetupError:
    """What Prometheus reads, or why it cannot."""
    try:
        return Figures("/metrics")
    except SetupError as error:
        return error


def text_of(found: Figures | SetupError) -> bytes:
    """The figures as a text."""
    if isinstance(found, SetupError):
        raise found
    return found.text()
