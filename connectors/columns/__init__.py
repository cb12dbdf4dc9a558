"""Values of records to columns: numbers, categories, times, labels and keys."""
