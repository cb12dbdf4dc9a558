"""Delayed labels: a store of pending events, and a classifier that learns them when their labels arrive."""
