"""Refits: windows of a stream, solved again by the batch solvers beside the running learner."""

from __future__ import annotations

from streamsvm.refit.classifier import RefitClassifier
from streamsvm.refit.triggers import Every, EveryTime, FirstOf, Growing, OnDemand, OnDrift
from streamsvm.refit.windows import Adaptive, Latest, Reservoir, Since

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
    "Reservoir",
    "Since",
]
