"""PostgreSQL: connection and sink."""
