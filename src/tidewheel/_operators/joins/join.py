"""What the joins have in common: two inputs, pairs out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal

import msgspec

from tidewheel._operators.keyed.state_values import StateValues
from tidewheel._operators.keyed.stateful_op import Handler
from tidewheel._operators.keyed.timed import TimedOperator
from tidewheel._values import ANY, Shape, shape_of
from tidewheel._values.type_variables import Left, Right
from tidewheel.errors import GraphError

How = Literal["inner", "left", "right", "full"]


class Joined(msgspec.Struct, Generic[Left, Right], frozen=True):
    """Two values that belong together; None on the side that has none."""

    left: Left
    right: Right


@dataclass(frozen=True)
class Join(TimedOperator):
    """A join of two keyed streams: what happens to messages without a partner, what it emits, the shapes of its sides."""

    needs_time = True
    how: How
    function: Callable[[Any, Any], Any]
    returns: Any
    left: Shape
    right: Shape

    def state_values(self) -> tuple[StateValues, StateValues]:
        """Return how the values of each side are stored."""
        return StateValues(self.left), StateValues(self.right)

    @property
    def state_layout(self) -> str:
        """The encoding of the values is part of it: state that marks dicts, rows and tuples in another way is refused."""
        return f"{super().state_layout} of tagged values"

    def handlers(self, logic: Any) -> tuple[Handler, ...]:
        return (logic.on_left, logic.on_right)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Take the declared type. Late messages are of either side."""
        return (shape_of(self.returns), ANY)[: self.ports]


def check_how(name: str, how: str, *known: str) -> None:
    """Refuse a word that the join of this name does not know."""
    if how not in known:
        # As Spark and SQL call them: left_outer, full outer, outer.
        plain = str(how).lower().replace("outer", "").strip(" _") or "full"
        meant = f'; write how="{plain}"' if plain in known else ""
        raise GraphError(f"operator {name!r}: how= is one of {', '.join(known)}, not {how!r}{meant}")
