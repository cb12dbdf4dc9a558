"""Runs with disturbed requests."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.kafka.proxy import Fault, Proxy

TEMPORARY = 75


class Disturbed(ABC):
    """Runs with faults, whose results must be those of a run without.

    Parameters
    ----------
    broker
        Address of the broker.
    topic
        Creates a topic.
    folder
        Working directory.

    Attributes
    ----------
    codes
        Exit codes of the last runs with faults.
    """

    def __init__(self, broker: str, topic: Callable[..., str], folder: Path) -> None:
        self.broker, self._topic, self._folder = broker, topic, folder
        self.codes: list[int] = []

    @abstractmethod
    def check(self, *interrupted: Sequence[Fault]) -> None:
        """Raise an error if the results are not those of a run without faults."""

    def _run_all(
        self, run: Callable[[Proxy | None], subprocess.CompletedProcess[str]], interrupted: Sequence[Sequence[Fault]]
    ) -> None:
        """Run with faults, resume with further ones, and finally without."""
        self.codes = []
        for faults in interrupted:
            with Proxy(self.broker, *faults) as proxy:
                done = run(proxy)
            self.codes.append(done.returncode)
            assert done.returncode in (0, 1, 2, TEMPORARY), done.stderr
            assert done.returncode == 0 or done.stderr.count("streamsvm: error: ") == 1, done.stderr
        if not self.codes or self.codes[-1]:
            done = run(None)
            assert not done.returncode, f"resumed: {done.stderr}"
