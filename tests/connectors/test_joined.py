"""Merged events and labels: order, rejected records, and resuming at any position."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connectors import open_source
from connectors.events import Batch
from connectors.joined import JoinedSource

Item = tuple[Any, ...]


def made(seed: int, folder: Path) -> Callable[[], JoinedSource]:
    """Two random files, read in small batches of different sizes."""
    dice = random.Random(seed)

    def write(name: str, head: str, rows: list[str]) -> str:
        path = folder / f"{seed}-{name}"
        path.write_text("\n".join([head, *rows]) + "\n")
        return str(path)

    n, m = dice.randint(1, 25), dice.randint(1, 25)
    times = [dice.choice(["x", 3]) if dice.random() < 0.1 else dice.randint(0, 30) for _ in range(n)]
    events = write("e.csv", "id,t,x", [f"{'' if t == 29 else f'e{i}'},{t},{i}" for i, t in enumerate(times)])
    found = [f"e{dice.randint(0, 25)},{dice.randint(0, 40)},{dice.choice(['A', 'B', ''])}" for _ in range(m)]
    labels = write("l.csv", "id,t,y", found)
    sizes = dice.choice([1, 2, 3, 100]), dice.choice([1, 4, 100])

    def make() -> JoinedSource:
        return JoinedSource(
            open_source(events, key="id", time="t", types={"x": "number"}, batch_size=sizes[0]),
            open_source(labels, key="id", time="t", label="y", batch_size=sizes[1], bare=True),
        )

    return make


def in_turn(batch: Batch) -> tuple[list[Item], list[Item]]:
    """Return events and labels of a batch in order, and the rejected records."""
    late, items = batch.late, []
    assert late is not None
    labels = list(zip(late.before.tolist(), late.keys, late.times, late.labels, strict=True))
    for i in range(len(batch) + 1):
        items += [("label", key, time, label) for before, key, time, label in labels if before == i]
        if i < len(batch):
            assert batch.keys is not None
            assert batch.times is not None
            items.append(("event", batch.keys[i], batch.times[i], batch.rows()[i]["x"]))
    return items, [(one.origin["file"], one.origin["line"], one.reason) for one in batch.rejected]


@pytest.mark.parametrize("seed", range(15))
def test_both_are_merged_by_time_and_any_position_is_a_place_to_go_on_from(tmp_path: Path, seed: int) -> None:
    make, dice = made(seed, tmp_path), random.Random(seed)
    whole: list[Item] = []
    rejected: list[Item] = []
    for batch in make():
        items, aside = in_turn(batch)
        whole, rejected = whole + items, rejected + aside
    newest = {"event": -1, "label": -1}
    merged = []
    for kind, _, time, _ in whole:
        newest[kind] = max(newest[kind], time)  # the newest time each stream has come to
        merged.append((newest[kind], kind))
    assert merged == sorted(merged)  # at equal times an event precedes a label
    source, found, found_rejected = make(), [], []
    batches = iter(source)
    while True:
        source.most = dice.choice([1, 2, 5, float("inf")])
        part = next(batches, None)
        if part is None:
            break
        assert len(part) <= source.most
        items, aside = in_turn(part)
        found, found_rejected = found + items, found_rejected + aside
        if dice.random() < 0.4:
            position = json.loads(json.dumps(part.position))
            source = make()
            source.seek(position)
            batches = iter(source)
    assert found == whole
    assert sorted(found_rejected) == sorted(rejected)
