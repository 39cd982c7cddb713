"""Apache Iceberg: sink."""
