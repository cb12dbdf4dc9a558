"""Check errors by class and attributes, because messages may change."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest


@contextlib.contextmanager
def raises(error: type[Exception] | tuple[type[Exception], ...], named: object = "", **wanted: Any) -> Iterator[Any]:
    """Like `pytest.raises`, with expected attributes of the error.

    The message must contain `named` and the attributes, except reasons.
    """
    with pytest.raises(error) as caught:
        yield caught
    assert {name: getattr(caught.value, name) for name in wanted} == wanted, caught.value
    texts = [named, *(value for name, value in wanted.items() if name != "reason")]
    assert all(str(text) in str(caught.value) for text in texts), caught.value
