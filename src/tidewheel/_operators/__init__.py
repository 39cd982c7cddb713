"""Steps: their description in the graph, and their work in a task."""
