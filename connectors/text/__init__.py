"""Text formats: bytes to lines, lines to records of CSV, JSON, ARFF and libsvm."""
