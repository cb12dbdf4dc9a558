"""Ensemble of kernel, polytope and linear members with few settings."""
