"""One model for each key of a stream: the core that engines with state by key call."""

from __future__ import annotations

from streamsvm.keyed.classifier import KeyedClassifier
from streamsvm.keyed.live import LiveKeys
from streamsvm.keyed.packing import KeyStateError

__all__ = ["KeyStateError", "KeyedClassifier", "LiveKeys"]
