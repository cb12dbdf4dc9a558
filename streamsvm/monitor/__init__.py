"""Feature drift and data quality of a stream, with a bounded false alarm rate.

Labels are not needed.
"""

from __future__ import annotations

from streamsvm.monitor.alarms import ColumnState, FeatureAlarm
from streamsvm.monitor.feature_monitor import FeatureMonitor
from streamsvm.monitor.profile import ColumnProfile, Profile, RelationProfile

__all__ = ["ColumnProfile", "ColumnState", "FeatureAlarm", "FeatureMonitor", "Profile", "RelationProfile"]
