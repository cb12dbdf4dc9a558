"""Accuracy and cost of learners, compared with others."""

from __future__ import annotations
