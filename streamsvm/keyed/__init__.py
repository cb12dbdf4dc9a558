"""One model per key of a stream, for stream processors with keyed state."""

from __future__ import annotations

from streamsvm.keyed.classifier import KeyCache, KeyedClassifier
from streamsvm.keyed.key_state import KeyStateError

__all__ = ["KeyCache", "KeyStateError", "KeyedClassifier"]
