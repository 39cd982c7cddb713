"""Helpers that several folders of tests share: models, in-memory transports, and ways to wait."""
