"""Codecs of payloads."""
