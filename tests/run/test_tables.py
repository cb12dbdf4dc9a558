"""Runs over data frames and Arrow data in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streamsvm import CPMClassifier
from streamsvm.run import Run, RunConfig
from streamsvm.run.errors import SetupError
from tests.errors import raises

N = 4000
RNG = np.random.default_rng(2)
X = RNG.normal(size=N)
TABLE = pa.table({"x": X, "colour": RNG.choice(["red", "blue"], N), "y": np.where(X > 0.1, "up", "down")})


def start(source: Any, out: Path, **options: Any) -> list[str]:
    Run(RunConfig(source=source, label="y", model="cpm", out=str(out), quiet=True, **options)).start()
    return out.read_text().splitlines()


def test_predictions_equal_those_of_the_learner(tmp_path):
    lines = start(iter(TABLE.to_batches(max_chunksize=500)), tmp_path / "out.csv")
    wanted = CPMClassifier().test_then_train(TABLE.drop_columns(["y"]).to_pandas(), TABLE["y"]).tolist()
    assert [line.split(",")[1] or None for line in lines[1:]] == wanted


@pytest.mark.parametrize("kind", ["table", "lazy"])
def test_a_run_over_a_table_resumes(kind, tmp_path):
    data = TABLE if kind == "table" else pl.DataFrame(TABLE).lazy()
    whole = start(data, tmp_path / "whole.csv")
    kept = {"checkpoint": str(tmp_path / "kept")}
    start(data, tmp_path / "out.csv", max_events=1500, **kept)
    assert start(data, tmp_path / "out.csv", **kept) == whole


def test_a_stream_that_is_read_once_has_no_checkpoint(tmp_path):
    batches = iter(TABLE.to_batches())
    with raises(SetupError, named="--checkpoint"):
        start(batches, tmp_path / "out.csv", checkpoint=str(tmp_path / "kept"))


def test_columns_are_checked_before_the_run(tmp_path):
    with raises(SetupError, named="'z'"):
        Run(RunConfig(source=TABLE, label="z")).start()
    with raises(SetupError, named="--label"):
        Run(RunConfig(source=TABLE)).start()


def test_labels_may_be_a_table(tmp_path):
    n = 200
    events, at = TABLE.slice(0, n).drop_columns(["y"]), pa.array(range(1_700_000_000, 1_700_000_000 + n))
    events = events.append_column("id", pa.array(range(n))).append_column("at", at)
    labels = pa.table({"id": range(n), "at": pc.add(at, 7), "y": TABLE["y"].slice(0, n)})
    late: dict[str, Any] = {"label_source": labels, "join": "id", "time": "at"}
    whole = start(events, tmp_path / "whole.csv", **late)
    assert len(whole) == n + 1
    assert whole[-1].split(",")[whole[0].split(",").index("prediction")] in ("up", "down")  # labels are learned
    kept = {"checkpoint": str(tmp_path / "kept")}
    start(events, tmp_path / "out.csv", max_events=90, **late, **kept)
    assert start(events, tmp_path / "out.csv", **late, **kept) == whole
    with raises(SetupError, named="--label-source"):
        start(events, tmp_path / "same.csv", **late | {"label_source": events})
    with raises(SetupError, named="--checkpoint"):
        again = {"checkpoint": str(tmp_path / "other")}
        start(events, tmp_path / "again.csv", **late | {"label_source": iter(labels.to_batches())}, **again)
