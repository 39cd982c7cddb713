"""What decoding raises for bytes that are not what they should be."""

from __future__ import annotations

import msgspec

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""`msgspec` passes on what Python says of text that is not UTF-8, and of what is nested too deeply."""
