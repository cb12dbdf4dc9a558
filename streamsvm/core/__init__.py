"""Numba layer: state schemas, field access in kernels, compilation, disk cache."""
