"""Windows: group the messages of a key by time."""
