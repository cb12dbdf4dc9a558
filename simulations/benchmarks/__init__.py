"""Accuracy and cost of learners, compared with others."""
