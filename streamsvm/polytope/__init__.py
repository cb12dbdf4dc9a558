"""Convex polytope machine: SGD on polytope faces, assigned by running entropies."""
