"""Generated streams with drift: scenarios in TOML, and the generators they use.

``synthetic:NAME`` is a scenario in the folder `scenarios` next to this file, or a generator by its name
(`connectors.synthetic.scenario.FAMILIES`). ``synthetic:FILE.toml`` is a scenario in any file.
`connectors.synthetic.scenario` documents the format.
"""

from __future__ import annotations

from connectors.synthetic.disturbances import Event
from connectors.synthetic.scenario import FAMILIES, Drift, Scenario, Stage, find, names
from connectors.synthetic.source import SyntheticSource

__all__ = ["FAMILIES", "Drift", "Event", "Scenario", "Stage", "SyntheticSource", "find", "names"]
