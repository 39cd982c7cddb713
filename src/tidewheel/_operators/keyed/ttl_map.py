"""ttl_map: a small map per key whose entries expire individually."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidewheel._operators.keyed.datetimes import with_datetime
from tidewheel._operators.keyed.output_buffer import OutputBuffer
from tidewheel._operators.keyed.state_spec import StateSpec
from tidewheel._operators.keyed.timed import TimedOperator
from tidewheel._operators.logic import Message, StatefulLogic
from tidewheel._state.timers import Timer
from tidewheel._time.duration import MAX_TIME, in_ns, moment
from tidewheel._values import Shape, shape_of
from tidewheel.errors import StepError

Entries = dict[Any, tuple[Any, int]]


class ExpiringMap(Mapping[Any, Any]):
    """The entries of one key that have not expired, in the order in which they were added."""

    def __init__(self, entries: Entries, output: OutputBuffer, timestamps: bool = False) -> None:
        """Created by `ttl_map`."""
        self._entries, self._output, self._timestamps = entries, output, timestamps
        self.soonest = MAX_TIME
        """The earliest expiry of the entries that were added here."""

    def put(self, key: Any, value: Any, expires: int | datetime) -> None:
        """Set an entry that expires when the epoch reaches `expires`, a datetime or an int in ns."""
        expires = in_ns(expires)
        if isinstance(expires, bool) or not isinstance(expires, int):
            raise StepError(f"the expiry of an entry must be a datetime or an int (ns since 1970 UTC), not {expires!r}")
        self._entries.pop(key, None)
        self._entries[key] = (value, expires)
        self._output.set_timer(expires)
        self.soonest = min(self.soonest, expires)

    def expires(self, key: Any) -> Any:
        """Return the expiry of an entry: a datetime, or an int in ns if times are integers."""
        time = self._entries[key][1]
        return moment(time) if self._timestamps else time

    def __getitem__(self, key: Any) -> Any:
        return self._entries[key][0]

    def __delitem__(self, key: Any) -> None:
        del self._entries[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)


@dataclass(frozen=True)
class TtlMap(TimedOperator):
    """Call `function(message, entries)` for each message and emit the result.

    An epoch removes the entries that have expired by then. A key without entries has no state.
    """

    function: Callable[[Message, ExpiringMap], Any]
    returns: Any = None
    kind = "ttl_map"
    order_matters = True
    waits_for_epochs = "no entry expires"

    def logic(self, timestamps: bool = False) -> TtlLogic:
        return TtlLogic(self.function, timestamps)

    def spec(self) -> StateSpec:
        """Keep entries with their expiry."""
        return StateSpec(dict[Any, tuple[Any, int]], dict)

    def shapes(self, inputs: tuple[Shape, ...]) -> tuple[Shape, ...]:
        return (shape_of(self.returns),)


class TtlLogic(StatefulLogic[Entries]):
    """The entries of each key."""

    _calls_last_timer_only = True

    def __init__(self, function: Callable[[Message, ExpiringMap], Any], timestamps: bool) -> None:
        self.function, self.timestamps = function, timestamps
        self._soonest: dict[Any, int] = {}
        """The keys of this task's messages, each with a lower bound for the expiry of its entries."""

    def on_data(self, message: Message, state: Entries, output: Any) -> Entries | None:
        """Call the function with the entries that have not expired."""
        key = message.key
        if key not in self._soonest:
            self._soonest[key] = _next_expiry(state)
        if message.time is not None and output.epoch is not None:
            # The epoch of the batch is sent after its data, but a message after that epoch must not see entries that
            # it expires.
            until = min(output.epoch, message.time - 1)
            if self._soonest[key] <= until:
                soonest = _next_expiry(state)
                if soonest <= until:
                    # Keep the bound of the key: if the message is rejected, the entries that expired here are restored.
                    _expire(state, until)
                else:
                    self._soonest[key] = soonest
        entries = ExpiringMap(state, output, self.timestamps)
        output.emit(self.function(with_datetime(message) if self.timestamps else message, entries))
        self._soonest[key] = min(self._soonest[key], entries.soonest)
        return state or None

    def on_timer(self, timer: Timer, state: Entries, output: Any) -> Entries | None:
        """Delete expired entries."""
        _expire(state, timer.time)
        return state or None


def _next_expiry(entries: Entries) -> int:
    return min((expires for _, expires in entries.values()), default=MAX_TIME)


def _expire(entries: Entries, until: int) -> None:
    for key in [key for key, (_, expires) in entries.items() if expires <= until]:
        del entries[key]
