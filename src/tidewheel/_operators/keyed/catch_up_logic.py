"""CatchUpLogic: a logic that does all that is due up to a time at once."""

from __future__ import annotations

from tidewheel._operators.logic import StatefulLogic
from tidewheel._values.type_variables import State


class CatchUpLogic(StatefulLogic[State]):
    """Its `on_timer` does what all timers of the key up to this one are for, in the order of their times.

    So of the timers of a key that are due together only the last is called: a key with thousands of them is looked through
    once. What it sends must not depend on the time of the timer.
    """
