"""The tutorial on Kafka, run as it is written, but for the port of the broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.kafka.conftest import starter

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "kafka.md"


def test_it_ends_with_one_prediction_for_each_event(broker, tmp_path):
    starter.make_topics(broker, "events", "predictions", "dead-letters")
    fences = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    printed = ""
    for kind, title, text in fences.findall(PAGE.read_text(encoding="utf-8")):
        text = text.replace("localhost:9092", broker)
        if kind == "python":
            (tmp_path / title).write_text(text, encoding="utf-8")
        elif not title:  # that of a terminal of its own starts a broker, which is there
            command = ["bash", "-euo", "pipefail", "-c", text]
            done = subprocess.run(
                command, cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            printed = done.stdout
    assert printed == "30000 predictions of 30000 events\n"
