"""Sources that are streaming DataFrames of Spark."""
