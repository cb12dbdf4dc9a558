"""Run the tutorials that need a broker as written, except for the port."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.conftest import starter

TUTORIALS = Path(__file__).resolve().parents[2] / "docs" / "tutorials"


@pytest.mark.parametrize(
    ("page", "topics"),
    [
        ("kafka.md", ["events", "predictions", "dead-letters"]),
        ("per-key.md", ["payments", "answers", "letters"]),
    ],
)
def test_it_ends_as_it_says(page, topics, broker, tmp_path):
    starter.make_topics(broker, *topics)
    fences = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    text = (TUTORIALS / page).read_text(encoding="utf-8")
    printed = ""
    for kind, title, code in fences.findall(text):
        code = code.replace("localhost:9092", broker)
        if kind == "python":
            (tmp_path / title).write_text(code, encoding="utf-8")
        elif kind == "sh" and not title:  # a separate terminal starts the broker, which is running
            command = ["bash", "-euo", "pipefail", "-c", code]
            done = subprocess.run(
                command, cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            printed = done.stdout
    assert printed.strip() in text
