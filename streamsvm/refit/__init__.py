"""Refits: batch solvers fit models to windows of a stream while the learner runs.

`RefitClassifier` (`classifier`) has a learner and `Refits` (`schedule`), which receives every labelled event. At an
event that a trigger (`triggers`) chooses, `Refits` takes the rows (`window_rows`) of the window (`windows`) and starts
a job (`jobs`). The thread of the job makes a task of these rows (`tasks`) and has it solved (`solvers`) in a separate
process (`solver_process`), or solves it itself if no process can be used. Meanwhile the stream goes on. At a fixed
later event, `Refits` waits for the model (`refitted_model`), calibrates it on events since the start, and adds it to
the vote (`vote`, with kernels in `vote_kernels` and `frozen_models`).
"""

from __future__ import annotations

from streamsvm.refit.classifier import RefitClassifier
from streamsvm.refit.triggers import Every, EveryTime, FirstOf, Growing, OnDemand, OnDrift
from streamsvm.refit.windows import Adaptive, Latest, Since

__all__ = [
    "Adaptive",
    "Every",
    "EveryTime",
    "FirstOf",
    "Growing",
    "Latest",
    "OnDemand",
    "OnDrift",
    "RefitClassifier",
    "Since",
]
