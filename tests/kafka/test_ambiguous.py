"""Requests of transactions whose answers are lost: each event has one prediction, and the model is the same."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ran_here
from tests.kafka.conftest import fill, read
from tests.kafka.proxy import APIS, Proxy
from tests.kafka.test_run import arguments, stream

N = 300


def check_losses(broker: str, topic: Any, folder: Path, cases: Iterable[tuple[str, str, int]]) -> None:
    """Run without losses, and with the loss of each case, then resume; compare predictions and models."""
    source, dead = topic("events"), topic("dead", 1)
    fill(broker, source, [row for row in stream(N, broken=False) if len(row[1] or b"") < 100])
    end = ("--at-end", "stop", "--checkpoint-every", 100)
    found: dict[Any, Any] = {}
    for case in [None, *cases]:
        out, place = topic("out"), folder / "-".join(map(str, case or ["plain"]))
        place.mkdir()
        asked = ["run", *arguments(broker, source, out, dead, *end)]
        if case is not None:
            with Proxy(broker, *case) as proxy, proxy.redirected():
                done = ran_here(*asked, cwd=place)
            assert proxy.n_lost == 1, case
            assert done.returncode in (0, 1, 75), done.stderr
            assert done.returncode == 0 or done.stderr.count("streamsvm: error: ") == 1
        ran_here(*asked, cwd=place, check=True)
        rows = [json.loads(record.value) for record in read(broker, out)]
        found[case] = (
            sorted((row["partition"], row["offset"], row["prediction"], row["score"]) for row in rows),
            (place / "model").read_bytes(),
        )
    assert len(found[None][0]) == len({row[:2] for row in found[None][0]}) > N * 0.9
    assert [case for case in found if found[case] != found[None]] == []


@pytest.mark.slow
def test_a_lost_answer_changes_no_result(broker: str, topic: Any, tmp_path: Path) -> None:
    check_losses(broker, topic, tmp_path, [(api, "answer", 1) for api in APIS] + [("EndTxn", "request", 2)])
