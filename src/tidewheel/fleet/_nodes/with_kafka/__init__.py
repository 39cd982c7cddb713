"""Events from Kafka to the inbox of a fleet."""
