"""Feature drift and data quality of a stream, before labels arrive, with a stated rate of false alarms."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamsvm.monitor.alarms import ColumnState, FeatureAlarm
    from streamsvm.monitor.feature_monitor import FeatureMonitor
    from streamsvm.monitor.profile import ColumnProfile, Profile, RelationProfile

__all__ = ["ColumnProfile", "ColumnState", "FeatureAlarm", "FeatureMonitor", "Profile", "RelationProfile"]

_HOMES = {
    "ColumnProfile": "profile",
    "ColumnState": "alarms",
    "FeatureAlarm": "alarms",
    "FeatureMonitor": "feature_monitor",
    "RelationProfile": "profile",
    "Profile": "profile",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
