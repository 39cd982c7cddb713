"""The exceptions of decoding invalid bytes."""

from __future__ import annotations

import msgspec

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""`msgspec` passes on Python's errors for text that is not UTF-8 and for data that is nested too deeply."""
