"""Kernel SVM on a budget of support vectors (BSGD)."""
