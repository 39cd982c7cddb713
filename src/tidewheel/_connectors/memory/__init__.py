"""Sources and sinks inside this process, for tests, examples and the terminal."""
