from __future__ import annotations

from tests.run.conftest import _compiled, streamsvm

__all__ = ["_compiled", "streamsvm"]
