"""Values of a stream that wait in state, each encoded by itself.

A value that waits is made again whenever it is used: a function that changes its argument changes nothing that waits, and what
comes out does not depend on whether a commit lay between. A value that cannot be stored is refused with its own record.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel._state.codec import msgpack_codec
from tidewheel._values import Shape


class StateValues:
    """How the values of one stream go into state and come out again."""

    def __init__(self, shape: Shape) -> None:
        """Take what the stream's values look like: a declared record comes out as that record."""
        self._codec = msgpack_codec(shape.type if shape.kind == "record" else Any)

    def put(self, value: Any) -> msgspec.Raw:
        """Return what is stored for a value; an `OperatorError` if it could not come back as it is."""
        return msgspec.Raw(self._codec.encode(value))

    def get(self, stored: msgspec.Raw) -> Any:
        """Return the value that was stored."""
        return self._codec.decode(bytes(stored))
