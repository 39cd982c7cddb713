"""JoinSteps: steps that join two keyed streams by key and time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, overload

from tidewheel._operators.graph import Port
from tidewheel._operators.joins.as_of import AsOfJoin
from tidewheel._operators.joins.interval import IntervalJoin
from tidewheel._operators.joins.join import How, Join, Joined, check_how
from tidewheel._operators.joins.window import WindowJoin
from tidewheel._operators.keyed.upserts import upserts_at
from tidewheel._program.arguments import checked_upgrade
from tidewheel._program.keyed_steps import KeyedSteps
from tidewheel._time.duration import Duration, nanoseconds
from tidewheel._time.windows import Fixed, Windows
from tidewheel._values import Shape
from tidewheel._values.type_variables import Key, Value
from tidewheel.errors import GraphError

if TYPE_CHECKING:
    from tidewheel._program.keyed_stream import KeyedStream
    from tidewheel._program.side_outputs import WindowedStream

Other = TypeVar("Other")
"""The type of the other stream's values."""
New = TypeVar("New")
"""The return type of a join's function."""


class JoinOptions(TypedDict, total=False):
    """Options for the values that a join stores."""

    version: int
    upgrade: Callable[[Any, int, str], Any] | None


class JoinSteps(KeyedSteps[Key, Value]):
    """Steps of a keyed stream that read a second stream."""

    # fmt: off
    @overload
    def interval_join(
        self, name: str, right: KeyedStream[Key, Other], *, before: Duration = "0 s", after: Duration = "0 s",
        how: Literal["inner"] = "inner",
        **options: Unpack[JoinOptions],
    ) -> KeyedStream[Key, Joined[Value, Other]]: ...
    @overload
    def interval_join(
        self, name: str, right: KeyedStream[Key, Other], *, before: Duration = "0 s", after: Duration = "0 s",
        how: Literal["left"],
        **options: Unpack[JoinOptions],
    ) -> KeyedStream[Key, Joined[Value, Other | None]]: ...
    @overload
    def interval_join(
        self, name: str, right: KeyedStream[Key, Other], *, before: Duration = "0 s", after: Duration = "0 s",
        how: Literal["right"],
        **options: Unpack[JoinOptions],
    ) -> KeyedStream[Key, Joined[Value | None, Other]]: ...
    @overload
    def interval_join(
        self, name: str, right: KeyedStream[Key, Other], *, before: Duration = "0 s", after: Duration = "0 s",
        how: Literal["full"],
        **options: Unpack[JoinOptions],
    ) -> KeyedStream[Key, Joined[Value | None, Other | None]]: ...
    @overload
    def interval_join(
        self, name: str, right: KeyedStream[Key, Other], *, before: Duration = "0 s", after: Duration = "0 s",
        how: Literal["inner"] = "inner",
        function: Callable[[Value, Other], New], returns: Any = None,
        **options: Unpack[JoinOptions],
    ) -> KeyedStream[Key, New]: ...
    @overload
    def interval_join(
        self, name: str, right: KeyedStream[Key, Other], *, before: Duration = "0 s", after: Duration = "0 s",
        how: Literal["left"],
        function: Callable[[Value, Other | None], New], returns: Any = None,
        **options: Unpack[JoinOptions],
    ) -> KeyedStream[Key, New]: ...
    @overload
    def interval_join(
        self, name: str, right: KeyedStream[Key, Other], *, before: Duration = "0 s", after: Duration = "0 s",
        how: Literal["right"],
        function: Callable[[Value | None, Other], New], returns: Any = None,
        **options: Unpack[JoinOptions],
    ) -> KeyedStream[Key, New]: ...
    @overload
    def interval_join(
        self, name: str, right: KeyedStream[Key, Other], *, before: Duration = "0 s", after: Duration = "0 s",
        how: Literal["full"],
        function: Callable[[Value | None, Other | None], New], returns: Any = None,
        **options: Unpack[JoinOptions],
    ) -> KeyedStream[Key, New]: ...
    # fmt: on
    def interval_join(
        self,
        name: str,
        right: KeyedStream[Any, Any],
        *,
        before: Duration = "0 s",
        after: Duration = "0 s",
        how: How = "inner",
        function: Callable[[Any, Any], Any] = Joined,
        returns: Any = None,
        **options: Unpack[JoinOptions],
    ) -> KeyedStream[Any, Any]:
        """Pair each message with the messages of `right` that have the same key and a near timestamp.

        A pair has the later of the two timestamps.

        - `right`: another keyed stream of the same job.
        - `before`, `after`: how much earlier or later than the left message the right message can be. By default both
          timestamps must be equal.
        - `how`: "inner" emits only pairs. "left", "right" and "full" also pair each unmatched message of that side, or
          of both, with None, as soon as no match can arrive.
        - `function`: called with both values; by default the result is a `Joined` of them.
        - `returns`: the return type of the function.
        - `version`, `upgrade`: if the type of a side's values changes by more than fields with defaults, increase
          `version` and pass `upgrade(value, version, side)`. It is called with each waiting value, decoded without a
          type, its version, and "left" or "right", and returns the new value, or None to drop it.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("paid")
        >>> orders = job.source("orders", sources.iterable([{"id": 1, "at": 10}, {"id": 2, "at": 11}]))
        >>> payments = job.source("payments", sources.iterable([{"id": 1, "at": 15}]))
        >>> orders = orders.event_time("at", unit="ns", max_delay="0 s", name="ordered")
        >>> payments = payments.event_time("at", unit="ns", max_delay="0 s", name="paid")
        >>> paid = orders.key_by("by-order", "id").interval_join("paid-in-time", payments.key_by("by-payment", "id"),
        ...     after="60 ns", how="left", function=lambda order, payment: payment is not None)
        >>> _ = paid.sink("out", sinks.collect())
        >>> run_in_memory(job).outputs["out"]
        [{'id': 1, 'value': True}, {'id': 2, 'value': False}]
        """
        check_how(name, how, "inner", "left", "right", "full")
        sides = self._sides(name, right)
        earlier = nanoseconds(before, f"step {name!r}: before")
        later = nanoseconds(after, f"step {name!r}: after")
        kept = self._kept(name, options)
        return self._at(self._joined(name, right, IntervalJoin(how, function, returns, *sides, earlier, later, **kept)))

    # fmt: off
    @overload
    def window_join(
        self, name: str, right: KeyedStream[Key, Other], windows: Windows, *, how: Literal["inner"] = "inner",
        **options: Unpack[JoinOptions],
    ) -> WindowedStream[Key, Joined[Value, Other], Value | Other]: ...
    @overload
    def window_join(
        self, name: str, right: KeyedStream[Key, Other], windows: Windows, *, how: Literal["left"],
        **options: Unpack[JoinOptions],
    ) -> WindowedStream[Key, Joined[Value, Other | None], Value | Other]: ...
    @overload
    def window_join(
        self, name: str, right: KeyedStream[Key, Other], windows: Windows, *, how: Literal["right"],
        **options: Unpack[JoinOptions],
    ) -> WindowedStream[Key, Joined[Value | None, Other], Value | Other]: ...
    @overload
    def window_join(
        self, name: str, right: KeyedStream[Key, Other], windows: Windows, *, how: Literal["full"],
        **options: Unpack[JoinOptions],
    ) -> WindowedStream[Key, Joined[Value | None, Other | None], Value | Other]: ...
    @overload
    def window_join(
        self, name: str, right: KeyedStream[Key, Other], windows: Windows, *, how: Literal["inner"] = "inner",
        function: Callable[[Value, Other], New], returns: Any = None,
        **options: Unpack[JoinOptions],
    ) -> WindowedStream[Key, New, Value | Other]: ...
    @overload
    def window_join(
        self, name: str, right: KeyedStream[Key, Other], windows: Windows, *, how: Literal["left"],
        function: Callable[[Value, Other | None], New], returns: Any = None,
        **options: Unpack[JoinOptions],
    ) -> WindowedStream[Key, New, Value | Other]: ...
    @overload
    def window_join(
        self, name: str, right: KeyedStream[Key, Other], windows: Windows, *, how: Literal["right"],
        function: Callable[[Value | None, Other], New], returns: Any = None,
        **options: Unpack[JoinOptions],
    ) -> WindowedStream[Key, New, Value | Other]: ...
    @overload
    def window_join(
        self, name: str, right: KeyedStream[Key, Other], windows: Windows, *, how: Literal["full"],
        function: Callable[[Value | None, Other | None], New], returns: Any = None,
        **options: Unpack[JoinOptions],
    ) -> WindowedStream[Key, New, Value | Other]: ...
    # fmt: on
    def window_join(
        self,
        name: str,
        right: KeyedStream[Any, Any],
        windows: Windows,
        *,
        how: How = "inner",
        function: Callable[[Any, Any], Any] = Joined,
        returns: Any = None,
        **options: Unpack[JoinOptions],
    ) -> WindowedStream[Any, Any, Any]:
        """Pair each message with the messages of `right` that have the same key and are in the same window.

        The pairs of a window are emitted when the clock passes its end. Messages for windows that have already ended
        are in the stream `late` of the result.

        - `windows`: `tumbling(length)` or `sliding(length, every)`.
        - `right`, `how`, `function`, `returns`, `version`, `upgrade`: as in `interval_join`.

        >>> from tidewheel import Job, sinks, sources, tumbling
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("same-hour")
        >>> inputs = {"hot": [{"room": "a", "at": 1}], "damp": [{"room": "a", "at": 8}, {"room": "a", "at": 12}]}
        >>> keyed = {}
        >>> for name, items in inputs.items():
        ...     source = job.source(name, sources.iterable(items))
        ...     timed = source.event_time("at", unit="ns", max_delay="0 s", name=f"{name}-at")
        ...     keyed[name] = timed.key_by(f"{name}-by", "room")
        >>> both = keyed["hot"].window_join("both", keyed["damp"], tumbling("10 ns"), function=lambda hot, damp: damp.at)
        >>> _ = both.sink("out", sinks.collect())
        >>> run_in_memory(job).outputs["out"]
        [{'room': 'a', 'value': 8}]
        """
        from tidewheel._program.side_outputs import WindowedStream

        check_how(name, how, "inner", "left", "right", "full")
        if not isinstance(windows, Fixed):
            raise GraphError(f"step {name!r}: a window join takes tumbling or sliding windows")
        sides = self._sides(name, right)
        kept = self._kept(name, options)
        joined = self._joined(name, right, WindowJoin(how, function, returns, *sides, windows, **kept))
        return WindowedStream(self.job, joined)

    # fmt: off
    @overload
    def as_of_join(
        self, name: str, right: KeyedStream[Key, Other], *, tolerance: Duration | None = None, how: Literal["inner"],
        **options: Unpack[JoinOptions],
    ) -> KeyedStream[Key, Joined[Value, Other]]: ...
    @overload
    def as_of_join(
        self, name: str, right: KeyedStream[Key, Other], *, tolerance: Duration | None = None, how: Literal["left"] = "left",
        **options: Unpack[JoinOptions],
    ) -> KeyedStream[Key, Joined[Value, Other | None]]: ...
    @overload
    def as_of_join(
        self, name: str, right: KeyedStream[Key, Other], *, tolerance: Duration | None = None, how: Literal["inner"],
        function: Callable[[Value, Other], New], returns: Any = None,
        **options: Unpack[JoinOptions],
    ) -> KeyedStream[Key, New]: ...
    @overload
    def as_of_join(
        self, name: str, right: KeyedStream[Key, Other], *, tolerance: Duration | None = None, how: Literal["left"] = "left",
        function: Callable[[Value, Other | None], New], returns: Any = None,
        **options: Unpack[JoinOptions],
    ) -> KeyedStream[Key, New]: ...
    # fmt: on
    def as_of_join(
        self,
        name: str,
        right: KeyedStream[Any, Any],
        *,
        tolerance: Duration | None = None,
        how: Literal["inner", "left"] = "left",
        function: Callable[[Any, Any], Any] = Joined,
        returns: Any = None,
        **options: Unpack[JoinOptions],
    ) -> KeyedStream[Any, Any]:
        """Pair each message with the latest value of `right` for its key as of its time.

        Emitted when the clock reaches that time.

        - `tolerance`: a `timedelta`, or text such as "90 s": the maximum age of that value. None allows any age.
        - `how`: "left" pairs a message without such a value with None; "inner" drops the message.
        - `right`: another keyed stream of the same job. If it is a table of `upserts`, the value is its row at that time,
          a dict; a deleted row is no value.
        - `function`, `returns`, `version`, `upgrade`: as in `interval_join`.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("priced")
        >>> inputs = {"sold": [{"tea": "oolong", "at": 7}], "price": [{"tea": "oolong", "at": 2, "cents": 400}]}
        >>> keyed = {}
        >>> for name, items in inputs.items():
        ...     source = job.source(name, sources.iterable(items))
        ...     timed = source.event_time("at", unit="ns", max_delay="0 s", name=f"{name}-at")
        ...     keyed[name] = timed.key_by(f"{name}-by", "tea")
        >>> priced = keyed["sold"].as_of_join("priced", keyed["price"], function=lambda sold, price: price.cents)
        >>> _ = priced.sink("out", sinks.collect())
        >>> run_in_memory(job).outputs["out"]
        [{'tea': 'oolong', 'value': 400}]
        """
        check_how(name, how, "inner", "left")
        limit = None if tolerance is None else nanoseconds(tolerance, f"step {name!r}: the tolerance")
        sides = self._sides(name, right)
        kept = self._kept(name, options)
        is_table = upserts_at(self.job.graph, right.port) is not None
        return self._at(self._joined(name, right, AsOfJoin(how, function, returns, *sides, limit, is_table, **kept)))

    def _sides(self, name: str, right: KeyedStream[Any, Any]) -> tuple[Shape, Shape]:
        port = self._port_of(name, right)
        if not isinstance(right, JoinSteps):
            raise GraphError(f"step {name!r}: a join is of two streams with keys; put key_by before both")
        return self.job.graph.shape(self.port), self.job.graph.shape(port)

    def _kept(self, name: str, options: JoinOptions) -> JoinOptions:
        checked_upgrade(name, options.get("upgrade"), "value", "version", "side")
        return options

    def _joined(self, name: str, right: KeyedStream[Any, Any], operator: Join) -> Port:
        return Port(self.job.graph.add(name, operator, (self.port, right.port)).id)
