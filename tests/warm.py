"""What commands need, imported and compiled, so that they are forks of a process that has it all."""

from __future__ import annotations

import contextlib
import gc
import io

import matplotlib.backends.backend_agg
import matplotlib.figure
import orjson
import pytest
import river.naive_bayes
import scipy.sparse

import connectors.sinks
import streamsvm.cli
import streamsvm.run.start
from streamsvm import BSGDClassifier, CPMClassifier, RefitClassifier, StreamSVMClassifier

with contextlib.suppress(ImportError):
    import kafka

    import connectors.kafka.sink

with contextlib.suppress(ImportError):
    import streamsvm.cli.per_key
    import streamsvm.keyed.quix

__all__ = ["connectors", "kafka", "orjson", "pytest", "river", "scipy", "streamsvm"]

# What solves in a process of its own would start one, of which forks have nothing.
refitted = RefitClassifier(CPMClassifier(n_faces=3), "cuts")
for model in (StreamSVMClassifier(), BSGDClassifier(), CPMClassifier(), refitted):
    model.run_batch([{"warm": 1.0}], [0])

figure = matplotlib.figure.Figure()
figure.subplots().set_title("warm")
figure.savefig(io.BytesIO(), format="png")
gc.collect()
gc.freeze()  # what is here stays: forks share it with one another as long as none looks through it for garbage
