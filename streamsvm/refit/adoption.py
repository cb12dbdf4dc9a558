"""Placeholder until the helper's work is merged."""

from __future__ import annotations

from typing import Any


class Adoption:
    is_running = False

    def __init__(self, solver: Any) -> None: ...
    @staticmethod
    def check(learner: Any, solver: Any) -> None:
        raise NotImplementedError
