"""KeyedStream: messages with a key, and the steps with state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import UnionType
from typing import Any, TypedDict, TypeVar, Unpack, overload

from tidewheel._operators.aggregates.aggregate import AggregateBy
from tidewheel._operators.aggregates.functions import Aggregate
from tidewheel._operators.keyed.deduplicate import Deduplicate, FieldGetter
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
from tidewheel._program.window_steps import WindowSteps
from tidewheel._state.codec import StateCodec
from tidewheel._state.timers import Clock
from tidewheel._time.duration import Duration, nanoseconds
from tidewheel._values import Row
from tidewheel._values.type_variables import Key, Value
from tidewheel.errors import GraphError

New = TypeVar("New")
"""The values that a step makes."""
S = TypeVar("S")
"""What a step keeps for each key."""


class StateOptions(TypedDict, total=False):
    """What may be said of a step's state beside its type and how it begins."""

    codec: StateCodec | None
    version: int
    upgrade: Callable[[Any, int], Any] | None
    aliases: Sequence[str]
    ttl: Duration | None
    ttl_clock: Clock
    retry: Errors


class KeyedStream(WindowSteps[Key, Value]):
    """Messages with a key: what `key_by` returns. Steps that have no interest in keys keep them.

    `KeyedStream[str, Order]` has text as keys and orders as values.
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
        """Call a function with each message and the state of its key; go on with the output that it returns.

        - `function`: called with key, value and state, it returns the pair `(output, new_state)`. A `new_state` of None
          drops the key's state.
        - `default`: the state of a key that has none: a value (copied for each key, if it can change), or a function or class
          that is called to make it. Without it, the state's type makes it from nothing: 0, "", an empty list.
        - `state`: the type of the state; the annotation of the function's third parameter serves as well.
        - `returns`: the type of the outputs; the function's annotation serves as well.
        - `codec`: how the state is stored; msgpack unless given.
        - `version`, `upgrade`: when the state's type changes by more than fields with defaults, raise `version` and give
          `upgrade(state, version)`. It gets each stored state, decoded without a type, with the version it has, and returns
          today's state, or None to drop it. It runs once, before the first batch.
        - `aliases`: names that the step had before, whose state it takes over.
        - `ttl`: a `timedelta`, or text such as "90 s". The state of a key is dropped so long after the key's last message.
        - `ttl_clock`: what measures that: "event", the timestamps of the stream, or "wall", the time of the batches.
        - `retry`: classes of errors that are transient, as in `map`.

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
        """Run a `StatefulLogic`: any number of messages out, epochs, schedules, timers.

        - `logic`: a `StatefulLogic`, or a function in place of its `on_data`: called with message, state and output, it returns
          the new state, or None to drop it.
        - `returns`: the type of the values that are sent.
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
            raise GraphError(f"operator {name!r}: it takes a logic and not its class; give {logic.__name__}(…)")
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
        """Return how a step's state begins, is stored and ends; `position` is that of the function's parameter for it."""
        upgrade = checked_upgrade(name, upgrade)
        spec = checked_state(name, state_spec(function, position, type, default, codec, version, upgrade))
        self.job.alias(name, *aliases)
        return spec, checked_ttl(name, ttl, ttl_clock), retry

    def aggregate(self, name: str, **aggregates: Aggregate) -> KeyedStream[Key, Row]:
        """Keep aggregates of each key, column-wise; emit, once for each batch and touched key, a row with all of them.

        - `aggregates`: by the name of the result's column, `sum_`, `count`, `min_`, `max_` and `mean` of columns.

        >>> from tidewheel import Job, count, sinks, sources, sum_
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("totals")
        >>> orders = job.source("in", sources.iterable([{"user": "ada", "cents": 250}, {"user": "ada", "cents": 50}]))
        >>> totals = orders.key_by("by-user", "user").aggregate("totals", spent=sum_("cents"), orders=count())
        >>> _ = totals.sink("out", sinks.collect())
        >>> run_in_memory(job).outputs["out"]
        [{'user': 'ada', 'spent': 300, 'orders': 2}]
        """
        return KeyedStream(self.job, self._then(name, AggregateBy(checked_aggregates(name, aggregates))))

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
        """Fold the values of each key; emit, once for each batch and touched key, the result so far.

        - `function`: makes one value of two. It must be associative: values are folded before they reach the key's shard too.
        - `state`: the type of the result, as in `stateful_map`; so are `codec`, `version`, `upgrade` and `aliases`.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("longest")
        >>> words = job.source("in", sources.iterable(["be", "bean", "to"])).key_by("by-letter", lambda word: word[0])
        >>> _ = words.reduce("longest", lambda one, other: max(one, other, key=len)).sink("out", sinks.collect())
        >>> sorted(record["value"] for record in run_in_memory(job).outputs["out"])
        ['bean', 'to']
        """
        values = self.job.graph.shape(self.port)
        # What is folded is of the type of the values; a record has to be declared to come back as one.
        declared = values.type if state is None and codec is None and values.kind == "record" else state
        # Of values of a plain type nothing is declared, since a function may make others of them.
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
        """Keep a map for each key whose entries expire; call a function with each message and the map of its key.

        - `function`: called with message and map; what it returns goes on. `entries.put(key, value, expires=time)` keeps an entry
          until the clock reaches that time: a datetime, or nanoseconds where `message.time` is.
        - `returns`: the type of what the function returns.

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
        """Let one message of each key through, and none that comes within `horizon` of it.

        - `horizon`: a `timedelta`, or text such as "90 s", measured by the timestamps of the messages.
        - `by`: the column that holds the id, or a function of the value that returns it; messages of one key with different ids
          are different. None: all messages of a key are the same.

        Messages that are dropped are counted as `name/dropped`.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("once")
        >>> clicks = job.source("in", sources.iterable([{"id": 7, "at": 1}, {"id": 7, "at": 3}, {"id": 7, "at": 60}]))
        >>> timed = clicks.event_time("at", unit="ns", max_delay="60 ns")
        >>> _ = timed.key_by("by-id", "id").deduplicate("once", "10 ns").sink("out", sinks.collect())
        >>> [record["at"] for record in run_in_memory(job).outputs["out"]]
        [1, 60]
        """
        nanos = nanoseconds(horizon, f"operator {name!r}: the horizon", 1)
        function = FieldGetter(by) if isinstance(by, str) else by and checked_function(name, by, "value")
        return KeyedStream(self.job, self._then(name, Deduplicate(nanos, function)))
