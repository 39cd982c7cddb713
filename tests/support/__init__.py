"""Helpers that several folders of tests share: models, in-memory stand-ins for transports, and ways to wait."""
