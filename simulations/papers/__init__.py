"""The experiments of the papers whose algorithms this package has."""

from __future__ import annotations
