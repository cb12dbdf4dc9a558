from __future__ import annotations

from tests.run.conftest import _compiled, refused, streamsvm

__all__ = ["_compiled", "refused", "streamsvm"]
