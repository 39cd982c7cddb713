"""Tickets: signed permission to write a cell."""
