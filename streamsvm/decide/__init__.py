"""Prediction sets, cost-sensitive decisions, alarms and explanations, from the probabilities of any classifier."""
