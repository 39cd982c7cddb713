"""Iceberg tables as history."""
