"""Numba layer: state schemas, field access in kernels, compilation and disk cache."""
