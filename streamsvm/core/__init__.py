"""What touches numba: states that compiled code reads by name, how functions are compiled, and where code is kept."""
