"""A deterministic simulation of the code that ships: one scheduler and one seed own time, network, store and threads."""
