"""KeyedStream: messages with a key, and the stateful steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import UnionType
from typing import Any, TypedDict, TypeVar, Unpack, overload

from tidewheel._operators.aggregates.aggregate import AggregateBy
from tidewheel._operators.aggregates.functions import Aggregate
from tidewheel._operators.field_getter import FieldGetter
from tidewheel._operators.keyed.deduplicate import Deduplicate
from tidewheel._operators.keyed.reduce import Reduce
from tidewheel._operators.keyed.state_spec import StateSpec, state_spec
from tidewheel._operators.keyed.stateful_map import StatefulMap
from tidewheel._operators.keyed.stateful_op import StatefulOp, as_logic
from tidewheel._operators.keyed.ttl import Ttl
from tidewheel._operators.keyed.ttl_map import ExpiringMap, TtlMap
from tidewheel._operators.logic import Message, Output, StatefulLogic
from tidewheel._program.arguments import (
    Errors,
    Factory,
    check_pair,
    checked_aggregates,
    checked_function,
    checked_state,
    checked_ttl,
    checked_upgrade,
)
from tidewheel._program.pattern_steps import PatternSteps
from tidewheel._state.codec import StateCodec
from tidewheel._state.timers import Clock
from tidewheel._time.duration import Duration, nanoseconds
from tidewheel._values import Row
from tidewheel._values.type_variables import Key, Value
from tidewheel.errors import GraphError

New = TypeVar("New")
"""The type of the values that a step emits."""
S = TypeVar("S")
"""The type of the state that a step stores for each key."""


class StateOptions(TypedDict, total=False):
    """Options for a step's state, besides its type and initial value."""

    codec: StateCodec | None
    version: int
    upgrade: Callable[[Any, int], Any] | None
    aliases: Sequence[str]
    ttl: Duration | None
    ttl_clock: Clock
    retry: Errors


class KeyedStream(PatternSteps[Key, Value]):
    """Messages with a key, as returned by `key_by`. Steps that do not use keys keep them.

    `KeyedStream[str, Order]` has text keys and values of type `Order`.
    """

    # fmt: off
    @overload
    def stateful_map(
        self, name: str, function: Callable[[Key, Value, Any], tuple[Any, Any]], *,
        returns: type[New], state: Any = None, default: Any = None, **options: Unpack[StateOptions],
    ) -> KeyedStream[Key, New]: ...
    @overload
    def stateful_map(
        self, name: str, function: Callable[[Key, Value, Any], tuple[New, Any]], *,
        returns: UnionType | None = None, state: UnionType | None = None, default: None = None,
        **options: Unpack[StateOptions],
    ) -> KeyedStream[Key, New]: ...
    @overload
    def stateful_map(
        self, name: str, function: Callable[[Key, Value, S], tuple[New, S | None]], *,
        returns: UnionType | None = None, state: type[S], default: Any = None, **options: Unpack[StateOptions],
    ) -> KeyedStream[Key, New]: ...
    @overload
    def stateful_map(
        self, name: str, function: Callable[[Key, Value, S], tuple[New, S | None]], *,
        returns: UnionType | None = None, state: UnionType | None = None, default: Factory[S],
        **options: Unpack[StateOptions],
    ) -> KeyedStream[Key, New]: ...
    @overload
    def stateful_map(
        self, name: str, function: Callable[[Key, Value, S], tuple[New, S | None]], *,
        returns: UnionType | None = None, state: UnionType | None = None, default: S,
        **options: Unpack[StateOptions],
    ) -> KeyedStream[Key, New]: ...
    # fmt: on
    def stateful_map(
        self,
        name: str,
        function: Callable[[Any, Any, Any], tuple[Any, Any]],
        *,
        default: Any = None,
        state: Any = None,
        returns: Any = None,
        **options: Unpack[StateOptions],
    ) -> KeyedStream[Any, Any]:
        """Call a function with each message and the state of its key; emit the output that the function returns.

        - `function`: called with key, value and state; returns the pair `(output, new_state)`. A `new_state` of None
          deletes the key's state.
        - `default`: the initial state of a key: a value (copied for each key if it is mutable), or a function or class
          that is called to create it. Without it, the state is the empty value of its type: 0, "", an empty list.
        - `state`: the type of the state, if the function's third parameter is not annotated.
        - `returns`: the type of the outputs, if the function's return type is not annotated.
        - `codec`: how the state is stored; msgpack by default.
        - `version`, `upgrade`: if the state's type changes by more than fields with defaults, increase `version` and
          pass `upgrade(state, version)`. It is called with each stored state, decoded without a type, and its version,
          and returns the new state, or None to delete it. It runs once, before the first batch.
        - `aliases`: former names of the step, whose state it takes over.
        - `ttl`: a `timedelta`, or text such as "90 s". The state of a key is deleted this long after the key's last
          message.
        - `ttl_clock`: the clock for `ttl`: "event" for the timestamps of the stream, or "wall" for the time of the
          batches.
        - `retry`: exception classes that are transient, as in `map`.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("totals")
        >>> orders = job.source("in", sources.iterable([{"user": "ada", "cents": 250}, {"user": "ada", "cents": 50}]))
        >>> totals = orders.key_by("by-user", "user").stateful_map(
        ...     "total", lambda user, order, total: (total + order.cents, total + order.cents), default=0)
        >>> _ = totals.sink("out", sinks.collect())
        >>> result = run_in_memory(job)
        >>> result.outputs["out"], result.states["total"]
        ([{'user': 'ada', 'value': 250}, {'user': 'ada', 'value': 300}], {'ada': 300})
        """
        check_pair(name, function)
        spec, ttl, retry = self._state(
            name, checked_function(name, function, "key", "value", "state"), 2, state, default, **options
        )
        return KeyedStream(self.job, self._then(name, StatefulMap(function, spec, returns, ttl), retry))

    # fmt: off
    @overload
    def stateful_op(
        self, name: str,
        logic: StatefulLogic[S, Value, New, Key] | Callable[[Message[Key, Value], S, Output[New]], S | None], *,
        returns: UnionType | None = None, state: type[S] | UnionType | None = None,
        default: S | Callable[[], S] | None = None, **options: Unpack[StateOptions],
    ) -> KeyedStream[Key, New]: ...
    @overload
    def stateful_op(
        self, name: str,
        logic: StatefulLogic[Any, Value, Any, Key] | Callable[[Message[Key, Value], Any, Output], Any], *,
        returns: type[New], state: Any = None, default: Any = None, **options: Unpack[StateOptions],
    ) -> KeyedStream[Key, New]: ...
    # fmt: on
    def stateful_op(
        self,
        name: str,
        logic: StatefulLogic[Any, Any, Any, Any] | Callable[..., Any],
        *,
        default: Any = None,
        state: Any = None,
        returns: Any = None,
        **options: Unpack[StateOptions],
    ) -> KeyedStream[Any, Any]:
        """Run a `StatefulLogic`, which can emit any number of messages and use epochs, schedules and timers.

        - `logic`: a `StatefulLogic`, or a function that replaces its `on_data`: called with message, state and output;
          returns the new state, or None to delete it.
        - `returns`: the type of the emitted values.
        - `default`, `state`, `codec`, `version`, `upgrade`, `aliases`, `ttl`, `ttl_clock`, `retry`: as in
          `stateful_map`.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> def every_second(message, seen, output):
        ...     if seen % 2:
        ...         output.emit(message.value)
        ...     return seen + 1
        >>> job = Job("halved")
        >>> keyed = job.source("in", sources.iterable(["a", "b", "c", "d"])).key_by("all", lambda word: 0)
        >>> _ = keyed.stateful_op("every-second", every_second, default=0).sink("out", sinks.collect())
        >>> [record["value"] for record in run_in_memory(job).outputs["out"]]
        ['b', 'd']
        """
        if isinstance(logic, type) and issubclass(logic, StatefulLogic):
            raise GraphError(f"step {name!r}: it takes a logic and not its class; give {logic.__name__}(…)")
        function = (
            logic.on_data
            if isinstance(logic, StatefulLogic)
            else checked_function(name, logic, "message", "state", "output")
        )
        spec, ttl, retry = self._state(name, function, 1, state, default, **options)
        return KeyedStream(self.job, self._then(name, StatefulOp(as_logic(logic), spec, returns, ttl), retry))

    def _state(
        self,
        name: str,
        function: Any,
        position: int,
        type: Any,
        default: Any,
        *,
        codec: StateCodec | None = None,
        version: int = 1,
        upgrade: Callable[[Any, int], Any] | None = None,
        aliases: Sequence[str] = (),
        ttl: Duration | None = None,
        ttl_clock: Clock = "event",
        retry: Errors = (),
    ) -> tuple[StateSpec, Ttl | None, Errors]:
        """Return how a step's state is created, stored and expired; `position` is the index of the function's state parameter."""
        upgrade = checked_upgrade(name, upgrade)
        spec = checked_state(name, state_spec(function, position, type, default, codec, version, upgrade))
        self.job.alias(name, *aliases)
        return spec, checked_ttl(name, ttl, ttl_clock), retry

    def aggregate(self, name: str, **aggregates: Aggregate) -> KeyedStream[Key, Row]:
        """Aggregate columns for each key; emit a row with all aggregates for each key that a batch changed.

        - `aggregates`: `sum_`, `count` and the other functions of `tidewheel.agg`, by the name of the result column.

        >>> from tidewheel import Job, count, sinks, sources, sum_
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("totals")
        >>> orders = job.source("in", sources.iterable([{"user": "ada", "cents": 250}, {"user": "ada", "cents": 50}]))
        >>> totals = orders.key_by("by-user", "user").aggregate("totals", spent=sum_("cents"), orders=count())
        >>> _ = totals.sink("out", sinks.collect())
        >>> run_in_memory(job).outputs["out"]
        [{'user': 'ada', 'spent': 300, 'orders': 2}]
        """
        return KeyedStream(
            self.job,
            self._then(name, AggregateBy(checked_aggregates(name, aggregates, self.job.graph.shape(self.port)))),
        )

    def reduce(
        self,
        name: str,
        function: Callable[[Value, Value], Value],
        *,
        state: Any = None,
        codec: StateCodec | None = None,
        version: int = 1,
        upgrade: Callable[[Any, int], Any] | None = None,
        aliases: Sequence[str] = (),
    ) -> KeyedStream[Key, Value]:
        """Fold the values of each key; emit the current result for each key that a batch changed.

        - `function`: combines two values into one. It must be associative: values are also combined before they reach
          the key's shard.
        - `state`: the type of the result, as in `stateful_map`, like `codec`, `version`, `upgrade` and `aliases`.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("longest")
        >>> words = job.source("in", sources.iterable(["be", "bean", "to"])).key_by("by-letter", lambda word: word[0])
        >>> _ = words.reduce("longest", lambda one, other: max(one, other, key=len)).sink("out", sinks.collect())
        >>> sorted(record["value"] for record in run_in_memory(job).outputs["out"])
        ['bean', 'to']
        """
        values = self.job.graph.shape(self.port)
        # The result has the type of the values. A record type must be declared, or the stored result would not be
        # decoded as one.
        declared = values.type if state is None and codec is None and values.kind == "record" else state
        # For a plain type nothing is declared, because the function may return another type.
        hint = values.type if values.kind == "scalar" else None
        spec = StateSpec(declared, None, codec, version, checked_upgrade(name, upgrade), hint)
        self.job.alias(name, *aliases)
        return KeyedStream(
            self.job, self._then(name, Reduce(checked_function(name, function, "one value", "another"), spec))
        )

    @overload
    def ttl_map(
        self, name: str, function: Callable[[Message[Key, Value], ExpiringMap], Any], *, returns: type[New]
    ) -> KeyedStream[Key, New]: ...
    @overload
    def ttl_map(
        self,
        name: str,
        function: Callable[[Message[Key, Value], ExpiringMap], New],
        *,
        returns: UnionType | None = None,
    ) -> KeyedStream[Key, New]: ...
    def ttl_map(
        self, name: str, function: Callable[[Message[Key, Value], ExpiringMap], Any], *, returns: Any = None
    ) -> KeyedStream[Any, Any]:
        """Keep a map with expiring entries for each key; call a function with each message and the map of its key.

        - `function`: called with message and map; its result is emitted. `entries.put(key, value, expires=time)` keeps
          an entry until the clock reaches that time: a datetime, or nanoseconds where `message.time` is in nanoseconds.
        - `returns`: the return type of the function.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> def recent(message, pages):
        ...     pages.put(message.value.page, True, expires=message.time + 5)
        ...     return ",".join(pages)
        >>> job = Job("recent")
        >>> pages = [{"page": "a", "at": 1}, {"page": "b", "at": 3}, {"page": "c", "at": 9}]
        >>> clicks = job.source("in", sources.iterable(pages, batch_size=1))
        >>> timed = clicks.event_time("at", unit="ns", max_delay="0 s")
        >>> _ = timed.key_by("all", lambda click: 0).ttl_map("recent", recent).sink("out", sinks.collect())
        >>> [record["value"] for record in run_in_memory(job).outputs["out"]]
        ['a', 'a,b', 'a,b,c']
        """
        return KeyedStream(
            self.job, self._then(name, TtlMap(checked_function(name, function, "message", "map"), returns))
        )

    def deduplicate(
        self, name: str, horizon: Duration, by: str | Callable[[Value], str | int | bytes] | None = None
    ) -> KeyedStream[Key, Value]:
        """Emit one message of each key and drop its duplicates within `horizon`.

        - `horizon`: a `timedelta`, or text such as "90 s", measured by the messages' timestamps.
        - `by`: the column that holds the id, or a function of the value that returns it; messages of one key with
          different ids are not duplicates. None treats all messages of a key as duplicates.

        Dropped messages are counted as `name/dropped`.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("once")
        >>> clicks = job.source("in", sources.iterable([{"id": 7, "at": 1}, {"id": 7, "at": 3}, {"id": 7, "at": 60}]))
        >>> timed = clicks.event_time("at", unit="ns", max_delay="60 ns")
        >>> _ = timed.key_by("by-id", "id").deduplicate("once", "10 ns").sink("out", sinks.collect())
        >>> [record["at"] for record in run_in_memory(job).outputs["out"]]
        [1, 60]
        """
        nanos = nanoseconds(horizon, f"step {name!r}: the horizon", 1)
        function = FieldGetter(by) if isinstance(by, str) else by and checked_function(name, by, "value")
        return KeyedStream(self.job, self._then(name, Deduplicate(nanos, function)))
