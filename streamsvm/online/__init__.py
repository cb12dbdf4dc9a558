"""Base classes of the online learners, and the kernels that they share."""
