"""Prediction sets, cost-sensitive decisions, alarms and explanations."""
