"""Windows: the messages of a key, by stretches of time."""
