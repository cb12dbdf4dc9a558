"""Values of records to columns: numbers, categories, times, labels and keys."""

from __future__ import annotations
