"""Real servers for tests: each module starts one kind, on free loopback ports, and stops it by its own process id."""
