"""Dashboard of a run, served by the process of the run or by `streamsvm watch`.

`DashboardState` collects the state of a run, `Server` serves it, and `page.html` draws it with uPlot 1.6.32 (MIT, see
`uPlot.LICENSE`).
"""

from __future__ import annotations
