"""Refits: windows of the stream, solved again by the batch solvers, beside the running learner."""

from __future__ import annotations
