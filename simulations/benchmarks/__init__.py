"""What the learners and solvers reach, and at what cost, beside others in the same run."""

from __future__ import annotations
