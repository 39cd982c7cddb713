"""The base of all joins: two inputs, and pairs as output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Literal

import msgspec

from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._operators.keyed.state_values import StateValues
from tidewheel._operators.keyed.stateful_op import Handler
from tidewheel._operators.keyed.timed import TimedOperator
from tidewheel._state.layout import StateLayout
from tidewheel._values import ANY, Shape, shape_of
from tidewheel._values.type_variables import Left, Right
from tidewheel.errors import GraphError

How = Literal["inner", "left", "right", "full"]
_SIDES = msgspec.msgpack.Decoder(list[list[list[msgspec.Raw]]])
"""The entries of both sides; each entry begins with its time and its value."""


class Joined(msgspec.Struct, Generic[Left, Right], frozen=True):
    """The two values of a pair; None on a side without a value."""

    left: Left
    right: Right


@dataclass(frozen=True)
class Join(TimedOperator):
    """A join of two keyed streams: the handling of messages without a partner, its function, and the shapes of its sides."""

    needs_time = True
    how: How
    function: Callable[[Any, Any], Any]
    returns: Any
    left: Shape
    right: Shape
    version: int = field(default=1, kw_only=True)
    upgrade: Callable[[Any, int, str], Any] | None = field(default=None, kw_only=True)
    """Converts a value that an earlier version of the program stored, given the version and the side."""

    @property
    def kept(self) -> Mapping[str, StateSpec]:
        return {"left": self._values("left", self.left), "right": self._values("right", self.right)}

    def _values(self, side: str, shape: Shape) -> StateSpec:
        declared = shape.type if shape.kind == "record" else Any
        upgrade = self.upgrade and partial(_upgraded, self.upgrade, side)
        return StateSpec(declared, version=self.version, upgrade=upgrade)

    def state_values(self) -> tuple[StateValues, StateValues]:
        """Return how the values of each side are stored."""
        left, right = (StateValues(spec.resolved_codec()) for spec in self.kept.values())
        return left, right

    def rewritten(self, raw: bytes, convert: Callable[[str, bytes], bytes | None]) -> bytes | None:
        left, right, *rest = _SIDES.decode(raw)
        sides = [_converted(each, partial(convert, side)) for side, each in (("left", left), ("right", right))]
        return msgspec.msgpack.encode([*sides, *rest]) if any(sides) else None

    @property
    def state_layout(self) -> StateLayout:
        """The encoding of the values is part of the layout: state with another encoding of dicts, rows and tuples is rejected."""
        return StateLayout(f"{super().state_layout} of tagged values")

    def handlers(self, logic: Any) -> tuple[Handler, ...]:
        return (logic.on_left, logic.on_right)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """The declared type; late messages can come from both sides."""
        return (shape_of(self.returns), ANY)[: self.ports]


def _upgraded(upgrade: Callable[[Any, int, str], Any], side: str, value: Any, version: int) -> Any:
    return upgrade(value, version, side)


def _converted(entries: list[list[msgspec.Raw]], convert: Callable[[bytes], bytes | None]) -> list[list[msgspec.Raw]]:
    """Return the entries of a side with converted values."""
    found = []
    for time, value, *rest in entries:
        if (changed := convert(bytes(value))) is not None:
            found.append([time, msgspec.Raw(changed), *rest])
    return found


def check_how(name: str, how: str, *known: str) -> None:
    """Raise a `GraphError` if the join does not support this `how`."""
    if how not in known:
        # As Spark and SQL call them: left_outer, full outer, outer.
        plain = str(how).lower().replace("outer", "").strip(" _") or "full"
        meant = f'; write how="{plain}"' if plain in known else ""
        raise GraphError(f"step {name!r}: how= must be one of {', '.join(known)}, not {how!r}{meant}")
