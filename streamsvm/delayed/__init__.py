"""Delayed labels: pending events that are learned when their labels arrive."""
