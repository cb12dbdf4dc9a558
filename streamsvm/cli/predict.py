"""``streamsvm predict``: predict the events of a stream with a saved model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from streamsvm.cli.options import PREDICT
from streamsvm.cli.run import run_config
from streamsvm.run.config import RunConfig


@dataclass(kw_only=True, eq=False)
class PredictConfig(RunConfig):
    """Settings of a run that does not learn."""

    takes: ClassVar[frozenset[str]] = PREDICT
    learn: bool = False


def main(given: dict[str, Any], started: float) -> int:
    """Predict and return the exit code."""
    return run_config(given, PredictConfig, started)
