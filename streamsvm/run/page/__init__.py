"""Dashboard of a run, served by the process of the run or by `streamsvm watch`.

`DashboardState` collects the state of a run, `Server` serves it, and `page.html` draws it with uPlot 1.6.32 (MIT, see
`uPlot.LICENSE`).
"""

from __future__ import annotations

import logging

from streamsvm.run.page.dashboard import DashboardState
from streamsvm.run.page.server import Server
from streamsvm.run.prometheus import Figures
from streamsvm.run.standing import Report

logger = logging.getLogger("streamsvm.run")


class Page:
    """An observer of a run that serves its dashboard.

    Parameters
    ----------
    place, token
        Address and token, as for `Server`.

    Attributes
    ----------
    server
        The server; `server.url` is the address.
    """

    def __init__(self, place: str, token: str | None = None) -> None:
        self._dashboard, self._figures = DashboardState(), Figures()
        self.server = Server(self._dashboard, place, token, self._figures.text)
        logger.info("the page: %s", self.server.url)

    def __call__(self, report: Report, fraction: float | None) -> None:
        """Record the state of the run."""
        self._dashboard(report, fraction)
        self._figures(report, fraction)

    def close(self) -> None:
        """Publish the end of the run and stop serving."""
        self._dashboard.close()
        self.server.close()
