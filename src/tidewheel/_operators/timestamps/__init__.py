"""Operators that say when a message happened and how far time has come."""
