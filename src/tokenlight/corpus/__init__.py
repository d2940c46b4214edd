"""A whole corpus explained into Parquet files."""
