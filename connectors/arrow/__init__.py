"""Arrow data: data frames, Arrow streams and Parquet files."""

from __future__ import annotations
