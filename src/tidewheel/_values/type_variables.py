"""The type variables of public classes.

Each has a default, so that a class written without its types, such as `Stream`, means a stream of anything.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import TypeVar  # typing's own has defaults from Python 3.13 on

from tidewheel._values.row import Row

Key = TypeVar("Key", default=Any, covariant=True)
"""The keys of a stream or a message."""
Value = TypeVar("Value", default=Any, covariant=True)
"""The values of a stream, a message, a codec or a window."""
Late = TypeVar("Late", default=Any, covariant=True)
"""The values that came too late for a window."""
Record = TypeVar("Record", default=Row, covariant=True)
"""What a source gives where the program declares nothing."""
Written = TypeVar("Written", default=Any, contravariant=True)
"""The values that a sink takes."""
Left = TypeVar("Left", default=Any, covariant=True)
Right = TypeVar("Right", default=Any, covariant=True)
"""The two sides of a join."""

State = TypeVar("State", default=Any)
"""What a logic keeps for each key."""
Handled = TypeVar("Handled", default=Any, contravariant=True)
"""The values that a logic handles."""
Emitted = TypeVar("Emitted", default=Any, covariant=True)
"""The values that a logic emits."""
Sent = TypeVar("Sent", default=Any, contravariant=True)
"""The values that an output takes."""
LogicKey = TypeVar("LogicKey", default=Any)
"""The keys of a logic's messages and states."""
