"""An inbox in NATS JetStream."""
