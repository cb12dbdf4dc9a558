"""Accuracy and cost of learners and solvers, compared with others."""

from __future__ import annotations
