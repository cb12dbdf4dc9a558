"""Each of the first answers and requests of a transaction is lost: see `test_ambiguous`.

python -m pytest -n 0 tests/kafka/each_loss.py          about five minutes
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kafka.proxy import APIS
from tests.kafka.test_ambiguous import check_losses


@pytest.mark.slow
@pytest.mark.parametrize("api", APIS)
def test_each_loss(api: str, broker: str, topic: Any, tmp_path: Path) -> None:
    n = 1 if api == "InitProducerId" else 3
    check_losses(broker, topic, tmp_path, [(api, lost, i + 1) for lost in ("answer", "request") for i in range(n)])
