"""The type variables of public classes.

Each has a default, so that a class written without its types, such as `Stream`, is a stream of any values.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import TypeVar  # typing's own has defaults from Python 3.13 on

from tidewheel._values.row import Row

Key = TypeVar("Key", default=Any, covariant=True)
"""The type of the keys of a stream or a message."""
Value = TypeVar("Value", default=Any, covariant=True)
"""The type of the values of a stream, a message, a codec or a window."""
Late = TypeVar("Late", default=Any, covariant=True)
"""The type of the values that are late for a window."""
Record = TypeVar("Record", default=Row, covariant=True)
"""The type of a source's records if the program declares nothing."""
Written = TypeVar("Written", default=Any, contravariant=True)
"""The type of the values that a sink accepts."""
Left = TypeVar("Left", default=Any, covariant=True)
Right = TypeVar("Right", default=Any, covariant=True)
"""The types of the two sides of a join."""

State = TypeVar("State", default=Any)
"""The type of the state that a logic stores for each key."""
Handled = TypeVar("Handled", default=Any, contravariant=True)
"""The type of the values that a logic handles."""
Emitted = TypeVar("Emitted", default=Any, covariant=True)
"""The type of the values that a logic emits."""
Sent = TypeVar("Sent", default=Any, contravariant=True)
"""The type of the values that an output accepts."""
LogicKey = TypeVar("LogicKey", default=Any)
"""The type of the keys of a logic's messages and states."""
