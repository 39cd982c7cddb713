"""Steps without state, and the two ends of a program: source and sink."""
