"""Values of a stream that wait in state, each encoded separately.

A waiting value is decoded each time it is used. So a function that changes its argument does not change the stored value,
and results do not depend on commits in between. A value that cannot be stored is rejected with its own record.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel._state.codec import StateCodec


class StateValues:
    """Encode and decode the values of one stream for the state."""

    def __init__(self, codec: StateCodec) -> None:
        """Take the codec of a single value."""
        self._codec = codec

    def put(self, value: Any) -> msgspec.Raw:
        """Return the encoded value. Raise a `StepError` if it could not be read back unchanged."""
        return msgspec.Raw(self._codec.encode(value))

    def get(self, stored: msgspec.Raw) -> Any:
        """Return the value that was stored."""
        return self._codec.decode(bytes(stored))
