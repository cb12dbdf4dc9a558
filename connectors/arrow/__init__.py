"""Arrow data: data frames, Arrow streams and Parquet files."""
