"""The conformance suite of connectors."""
