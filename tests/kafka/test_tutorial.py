"""Run the tutorials that need a broker as written, except for the port."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.conftest import starter
from tests.test_docs import DOCS, blocks, run


@pytest.mark.parametrize(
    ("page", "topics"),
    [
        ("kafka.md", ["events", "predictions", "dead-letters"]),
        ("per-key.md", ["payments", "answers", "letters"]),
    ],
)
def test_it_ends_as_it_says(page, topics, broker, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    starter.make_topics(broker, *topics)
    path, printed = DOCS / "tutorials" / page, ""
    for kind, title, code in blocks(path):
        code = code.replace("localhost:9092", broker)
        if kind == "python":
            Path(title).write_text(code, encoding="utf-8")
        elif kind == "sh" and not title:  # a separate terminal starts the broker, which is running
            printed = run(code)
    assert printed.strip() in path.read_text(encoding="utf-8")
