"""Dashboard of a run, served by the process of the run or by `streamsvm watch`.

`DashboardState` collects the state of a run, `Server` serves it, and `page.html` draws it with uPlot 1.6.32 (MIT, see
`uPlot.LICENSE`).
"""

from __future__ import annotations

import logging

from streamsvm.run.page.dashboard import DashboardState
from streamsvm.run.page.server import Server

logger = logging.getLogger("streamsvm.run")


class Page(DashboardState):
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
        super().__init__()
        self.server = Server(self, place, token)
        logger.info("the page: %s", self.server.url)

    def close(self) -> None:
        """Publish the end of the run and stop serving."""
        super().close()
        self.server.close()
