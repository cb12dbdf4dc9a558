"""Generated streams that drift: scenarios in a few lines of TOML, and the generators they are made of.

``synthetic:NAME`` is a scenario of the folder `scenarios` beside this file, or a generator by its name
(`connectors.synthetic.generators.FAMILIES`); ``synthetic:FILE.toml`` is one of your own. What a description may say is
in `connectors.synthetic.scenario`.
"""

from __future__ import annotations

from connectors.synthetic.disturbances import Event
from connectors.synthetic.generators import FAMILIES
from connectors.synthetic.scenario import Drift, Scenario, Stage, find, names
from connectors.synthetic.source import SyntheticSource

__all__ = ["FAMILIES", "Drift", "Event", "Scenario", "Stage", "SyntheticSource", "find", "names"]
