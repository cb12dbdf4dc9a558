"""The experiments of the papers whose algorithms this package has."""
