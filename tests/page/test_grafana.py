"""The dashboard only queries existing metrics."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from connectors import open_source
from streamsvm import CPMClassifier, RefitClassifier
from streamsvm.refit import Every
from streamsvm.run.checkpoint import Checkpoint
from streamsvm.run.prometheus import text_of_report
from tests.run.conftest import runner_of

DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "grafana" / "streamsvm.json"


def test_every_metric_it_shows_is_exported(tmp_path):
    model = RefitClassifier(CPMClassifier(), "newton", trigger=Every(300), delay=64)
    report = runner_of(model, open_source("synthetic:sea?n=800&batch_size=200")).run()
    report.lag = {0: 5}
    report.checkpoint = Checkpoint(tmp_path)
    report.checkpoint.written_at = time.time()
    exported = set(re.findall(r"^(streamsvm_\w+)", text_of_report(report).decode(), re.MULTILINE))
    board = json.loads(DASHBOARD.read_text())
    asked = set(re.findall(r"streamsvm_\w+", json.dumps([board["panels"], board["templating"], board["annotations"]])))
    assert asked <= exported
    assert len(asked) >= 12


def test_panels_do_not_overlap():
    cells = [
        (x, y)
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
