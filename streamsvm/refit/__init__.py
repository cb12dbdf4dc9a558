"""Refits: batch solvers fit models to windows of a stream while the learner runs."""

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
