"""Kafka: client, source and sink."""
