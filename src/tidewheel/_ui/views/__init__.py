"""The views of the page as plain data for JSON."""
