"""NATS JetStream: client, source and sink."""
