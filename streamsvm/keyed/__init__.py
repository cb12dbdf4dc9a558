"""One model per key of a stream, for stream processors with keyed state."""

from __future__ import annotations

from streamsvm.keyed.classifier import KeyedClassifier, LiveKeys
from streamsvm.keyed.sections import KeyStateError

__all__ = ["KeyStateError", "KeyedClassifier", "LiveKeys"]
