"""Import and compile what commands need, so that they can be forked here."""

from __future__ import annotations

import contextlib
import gc
from unittest import mock

import orjson
import pytest
import river.naive_bayes
import scipy.sparse

import connectors.outputs.files
import streamsvm.cli
import streamsvm.run.start
from streamsvm import BSGDClassifier, CPMClassifier, RefitClassifier, StreamSVMClassifier

with contextlib.suppress(ImportError):
    import kafka

    import connectors.kafka.sink

__all__ = ["connectors", "kafka", "orjson", "pytest", "river", "scipy", "streamsvm"]

# The process of a solver would not be available in forks.
with mock.patch("streamsvm.refit.classifier.get_ready"):
    refitted = RefitClassifier(CPMClassifier(n_faces=3), "cuts")
for model in (StreamSVMClassifier(), BSGDClassifier(), CPMClassifier(), refitted):
    model.run_batch([{"warm": 1.0}], [0])
gc.collect()
gc.freeze()  # forks share these objects as long as no garbage collection visits them
