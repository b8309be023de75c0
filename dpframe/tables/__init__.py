"""Tables in and out: frames, Parquet files, and releases that are read back."""
