"""Values of a stream that wait in state, each encoded by itself.

A value that waits is made again whenever it is used: a function that changes its argument changes nothing that waits, and what
comes out does not depend on whether a commit lay between. A value that cannot be stored is refused with its own record.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel._state.codec import StateCodec


class StateValues:
    """How the values of one stream go into state and come out again."""

    def __init__(self, codec: StateCodec) -> None:
        """Take the codec of a single value."""
        self._codec = codec

    def put(self, value: Any) -> msgspec.Raw:
        """Return what is stored for a value; an `OperatorError` if it could not come back as it is."""
        return msgspec.Raw(self._codec.encode(value))

    def get(self, stored: msgspec.Raw) -> Any:
        """Return the value that was stored."""
        return self._codec.decode(bytes(stored))
