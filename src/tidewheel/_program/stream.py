"""Stream and KeyedStream: how a program is written, one named step after the other."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from tidewheel._codecs.base import PayloadCodec, payload_codec
from tidewheel._connectors.sink import Sink
from tidewheel._operators.aggregates.aggregate import AggregateBy
from tidewheel._operators.aggregates.functions import Aggregate
from tidewheel._operators.base import Operator
from tidewheel._operators.graph import Port
from tidewheel._operators.joins.as_of import AsOfJoin
from tidewheel._operators.joins.interval import IntervalJoin
from tidewheel._operators.joins.join import How, Joined, check_how
from tidewheel._operators.joins.window import WindowJoin
from tidewheel._operators.keyed.deduplicate import Deduplicate
from tidewheel._operators.keyed.key_by import KeyBy
from tidewheel._operators.keyed.reduce import Reduce
from tidewheel._operators.keyed.stateful_map import StatefulMap, StateSpec, state_spec
from tidewheel._operators.keyed.stateful_op import StatefulOp, as_logic
from tidewheel._operators.keyed.ttl import Ttl
from tidewheel._operators.keyed.ttl_map import ExpiringMap, TtlMap
from tidewheel._operators.logic import Message, StatefulLogic
from tidewheel._operators.stateless.decode import DEAD, Decode
from tidewheel._operators.stateless.filter import Filter
from tidewheel._operators.stateless.flat_map import FilterMap, FlatMap
from tidewheel._operators.stateless.inspect import Inspect
from tidewheel._operators.stateless.map import Map
from tidewheel._operators.stateless.map_batches import MapBatches
from tidewheel._operators.stateless.sink import SinkOperator
from tidewheel._operators.stateless.split import Chooser, Split
from tidewheel._operators.stateless.union import Union
from tidewheel._operators.timestamps.assign_timestamps import AssignTimestamps
from tidewheel._operators.timestamps.generate_epochs import LATE, GenerateEpochs
from tidewheel._operators.timestamps.inspect_frontier import InspectFrontier
from tidewheel._operators.windows.fixed import FixedWindows
from tidewheel._operators.windows.fixed_aggregates import FixedAggregates
from tidewheel._operators.windows.session import SessionWindows, session_aggregates
from tidewheel._operators.windows.window import Fold
from tidewheel._state.codec import StateCodec
from tidewheel._state.timers import Clock
from tidewheel._time.duration import Duration, nanoseconds
from tidewheel._time.panes import Panes
from tidewheel._time.windows import Fixed, Session, Windows
from tidewheel._values import Shape
from tidewheel.errors import GraphError

if TYPE_CHECKING:
    from tidewheel._program.job import Job

IDLE_AFTER = datetime.timedelta(minutes=1)
"""How long an input of the frontier may be without data before it holds the others back no longer."""


class Stream:
    """Messages without a key. Every step takes its name first and returns the stream behind it."""

    def __init__(self, job: Job, port: Port) -> None:
        """Made by `Job.source` and by the steps themselves."""
        self.job = job
        self.port = port

    def _then(self, name: str, operator: Operator) -> Port:
        return Port(self.job.graph.add(name, operator, (self.port,)).id)

    def _at(self, port: Port) -> Self:
        return type(self)(self.job, port)

    def _same(self, name: str, operator: Operator) -> Self:
        return self._at(self._then(name, operator))

    def map(self, name: str, function: Callable[[Any], Any], *, returns: Any = None) -> Self:
        """Replace each value by what the function returns. `returns`, or its annotation, declares the type."""
        return self._same(name, Map(_function(name, function), returns))

    def filter(self, name: str, function: Callable[[Any], Any]) -> Self:
        """Keep the values for which the function returns something true."""
        return self._same(name, Filter(_function(name, function)))

    def filter_map(self, name: str, function: Callable[[Any], Any], *, returns: Any = None) -> Self:
        """Replace each value by what the function returns; leave it out where that is None."""
        return self._same(name, FilterMap(_function(name, function), returns))

    def flat_map(self, name: str, function: Callable[[Any], Iterable[Any]], *, returns: Any = None) -> Self:
        """Replace each value by the items of what the function returns. `returns` is the type of one item."""
        return self._same(name, FlatMap(_function(name, function), returns))

    def inspect(self, name: str, function: Callable[[Any], Any]) -> Self:
        """Call the function with each value as it passes; in the tasks, and again if a batch runs again."""
        return self._same(name, Inspect(_function(name, function)))

    def map_batches(
        self, name: str, function: Callable[[pa.RecordBatch], pa.RecordBatch], *, returns: Any = None
    ) -> Self:
        """Give the function whole Arrow record batches and go on with those it returns."""
        return self._same(name, MapBatches(_function(name, function), returns))

    def decode(self, name: str, codec: PayloadCodec, *, column: str = "value") -> tuple[Self, Self]:
        """Make records of payloads by a codec of `tidewheel.codecs`; return them, and the messages that are none.

        Messages that do not decode go on as they were, raw bytes and all, with the column `error`. They need a sink, which
        gets them inside the same commit as the rest; they are counted as `name/dead`. Keys and timestamps stay.
        """
        port = self._then(name, Decode(payload_codec(codec), column))
        return self._at(port), self._at(Port(port.node, DEAD))

    def assign_timestamps(self, name: str, time: str | Callable[[Any], int | datetime.datetime]) -> Self:
        """Give each message a timestamp: a column, or what a function returns for its value.

        A timestamp is an int, ns since 1970 UTC; a column of timestamps and a `datetime` will do as well.
        """
        if not isinstance(time, str) and not callable(time):
            raise GraphError(f"operator {name!r}: it takes a column's name or a function, not {type(time).__name__}")
        return self._same(name, AssignTimestamps(time))

    def generate_epochs(
        self,
        name: str,
        function: Callable[[Message, int | None], int | None],
        *,
        idle_after: Duration | None = IDLE_AFTER,
        advance_after: Duration | None = None,
        partition: str | Callable[[Any], Any] | None = None,
    ) -> tuple[Self, Self]:
        """Say how far time has come, and return the stream that is on time and the one that is late.

        `function(message, last_epoch)` returns an epoch, a promise that no message up to it comes any more, or None. The job
        has one clock: the least of all its inputs' epochs, which never goes back, goes out after the data of the next
        batch. A message up to it is late. `idle_after` without data an input holds the others back no longer (None: it
        always does); `partition` tells several inputs of one stream apart, such as the partitions of a topic.
        `advance_after` without data an input's epoch goes on as the clock does, so that windows close on a stream that is
        silent for good; what comes after all is then late (None: it stands still).
        """
        epochs = GenerateEpochs(
            _function(name, function),
            0,
            _silence("idle_after", idle_after),
            partition,
            _silence("advance_after", advance_after),
        )
        return self._epochs(name, epochs)

    def limit_out_of_orderness(
        self,
        name: str,
        bound: Duration,
        *,
        idle_after: Duration | None = IDLE_AFTER,
        advance_after: Duration | None = None,
        partition: str | Callable[[Any], Any] | None = None,
    ) -> tuple[Self, Self]:
        """As `generate_epochs`, by how far a message may be behind the latest one and still be on time: a duration from 0 on."""
        nanos = nanoseconds(bound, f"operator {name!r}: the bound")
        return self._epochs(
            name,
            GenerateEpochs(
                None, nanos, _silence("idle_after", idle_after), partition, _silence("advance_after", advance_after)
            ),
        )

    def _epochs(self, name: str, operator: GenerateEpochs) -> tuple[Self, Self]:
        port = self._then(name, operator)
        return self._at(port), self._at(Port(port.node, LATE))

    def inspect_frontier(self, name: str, function: Callable[[int], Any]) -> Self:
        """Call the function with each epoch as it passes; in every task, and again if a batch runs again."""
        return self._same(name, InspectFrontier(_function(name, function)))

    def union(self, name: str, *others: Stream) -> Self:
        """Return one stream of all messages of this stream and the others."""
        for other in others:
            if isinstance(other, KeyedStream) != isinstance(self, KeyedStream):
                raise GraphError(f"operator {name!r}: a union is of streams that all have keys, or none of them")
        ports = (self.port, *(other.port for other in others))
        return self._at(Port(self.job.graph.add(name, Union(), ports).id))

    def split(self, name: str, outputs: int, function: Callable[[Any], int | Iterable[int]]) -> tuple[Self, ...]:
        """Part the stream: `function(value)` returns the number of the output that takes it, or several, or none.

        A message that no output takes is dropped and counted, as `name/dropped` among the counts of the job.
        """
        if isinstance(outputs, bool) or not isinstance(outputs, int) or outputs < 1:
            raise GraphError(f"operator {name!r}: a split has at least one output, not {outputs!r}")
        node = self._then(name, Split(_function(name, function), outputs)).node
        return tuple(self._at(Port(node, output)) for output in range(outputs))

    def branch(self, name: str, *predicates: Callable[[Any], Any]) -> tuple[Self, ...]:
        """Part the stream by predicates: each output has the messages for which its predicate holds, which may be several."""
        chooser = Chooser(tuple(_function(name, predicate) for predicate in predicates))
        return self.split(name, len(predicates), chooser)

    def clone(self, copies: int = 2) -> tuple[Self, ...]:
        """Return the stream several times over: whatever follows one of them gets every message."""
        return (self,) * copies

    def key_by(self, name: str, key: str | Callable[[Any], Any], *, value: str | None = None) -> KeyedStream:
        """Give each message a key, a column or what a function returns; messages of one key then meet in one place.

        `value` names the one column that the rest of the program needs: it becomes the value.
        """
        if not isinstance(key, str) and not callable(key):
            raise GraphError(f"operator {name!r}: key_by takes a column's name or a function, not {type(key).__name__}")
        return KeyedStream(self.job, self._then(name, KeyBy(key, value)))

    def sink(self, name: str, sink: Sink) -> Self:
        """Write the stream to a sink; the stream goes on, so that it may have several."""
        if not isinstance(sink, Sink):
            raise GraphError(
                f"sink {name!r}: {sink!r} is not a sink; see tidewheel.sinks (files, console, collect, for_each_batch, for_each)"
            )
        key_name = self.job.graph.nodes[self.port.node].key_name
        self._then(name, SinkOperator(sink, key_name))
        return self


class KeyedStream(Stream):
    """Messages with a key: what `key_by` returns. Steps that are not keyed themselves keep the keys."""

    def stateful_map(
        self,
        name: str,
        function: Callable[[Any, Any, Any], tuple[Any, Any]],
        *,
        default: Any = None,
        state: Any = None,
        returns: Any = None,
        codec: StateCodec | None = None,
        version: int = 1,
        upgrade: Callable[[Any, int], Any] | None = None,
        aliases: Sequence[str] = (),
        ttl: Duration | None = None,
        ttl_clock: Clock = "event",
    ) -> KeyedStream:
        """Call `function(key, value, state)`, which returns `(output, new_state)`, for each message.

        A key seen first, or dropped before by a `new_state` of None, gets `default` (called, if callable; copied, if
        mutable), or what the state's type makes from nothing. `state` declares that type; the annotation of the
        function's third parameter serves as well. `name` is the identity of the state; `aliases` are names that the
        operator had before, whose state it takes over. When the state's type changes by more than fields with defaults,
        raise `version` and give `upgrade(state, version)`: it gets each stored state, decoded without a type, with the
        version it has, and returns today's, or None to drop it. It runs once, before the first batch. With `ttl`, the state of
        a key goes that long after its last message, by the timestamps or, with `ttl_clock="wall"`, by the clock.
        """
        spec = state_spec(_function(name, function), 2, state, default, codec, version, upgrade)
        self.job.alias(name, *aliases)
        return KeyedStream(
            self.job, self._then(name, StatefulMap(function, _checked(name, spec), returns, _ttl(name, ttl, ttl_clock)))
        )

    def stateful_op(
        self,
        name: str,
        logic: StatefulLogic[Any] | Callable[..., Any],
        *,
        default: Any = None,
        state: Any = None,
        returns: Any = None,
        codec: StateCodec | None = None,
        version: int = 1,
        upgrade: Callable[[Any, int], Any] | None = None,
        aliases: Sequence[str] = (),
        ttl: Duration | None = None,
        ttl_clock: Clock = "event",
    ) -> KeyedStream:
        """Run a `StatefulLogic`: any number of messages out, epochs, schedules, timers; or a function in place of its `on_data`.

        State, `aliases`, `upgrade` and `ttl` are as in `stateful_map`.
        """
        if isinstance(logic, type) and issubclass(logic, StatefulLogic):
            raise GraphError(f"operator {name!r}: it takes a logic and not its class; give {logic.__name__}(…)")
        wrapped = as_logic(logic)
        function = logic.on_data if isinstance(logic, StatefulLogic) else _function(name, logic)
        spec = state_spec(function, 1, state, default, codec, version, upgrade)
        self.job.alias(name, *aliases)
        return KeyedStream(
            self.job, self._then(name, StatefulOp(wrapped, _checked(name, spec), returns, _ttl(name, ttl, ttl_clock)))
        )

    def aggregate(self, name: str, **aggregates: Aggregate) -> KeyedStream:
        """Keep aggregates of each key, column-wise: `aggregate("totals", total=sum_("amount"), n=count())`.

        Emits, once per batch and touched key, a row with one attribute per aggregate.
        """
        return KeyedStream(self.job, self._then(name, AggregateBy(_aggregates(name, aggregates))))

    def reduce(
        self,
        name: str,
        function: Callable[[Any, Any], Any],
        *,
        state: Any = None,
        codec: StateCodec | None = None,
        version: int = 1,
        upgrade: Callable[[Any, int], Any] | None = None,
        aliases: Sequence[str] = (),
    ) -> KeyedStream:
        """Fold the values of each key with an associative function; emits the result once per batch and touched key."""
        spec = StateSpec(state, None, codec, version, upgrade)
        self.job.alias(name, *aliases)
        return KeyedStream(self.job, self._then(name, Reduce(_function(name, function), spec)))

    def window(
        self,
        name: str,
        windows: Windows,
        add: Callable[[Any, Any], Any] | None = None,
        *,
        default: Any = None,
        merge: Callable[[Any, Any], Any] | None = None,
        state: Any = None,
        allowed_lateness: Duration = 0,
        **aggregates: Aggregate,
    ) -> WindowedStream:
        """Fold the values of each key by windows: `tumbling(length)`, `sliding(length, every)` or `session(gap)`.

        Either `add(folded, value)`, which begins with `default` as states do, or aggregates as `aggregate` takes them. A
        window is emitted once, when the epoch passes its end, as a `WindowResult`, or a row with `start`, `end` and the
        aggregates. Messages up to `allowed_lateness` behind the end are still taken in, and the window is emitted again with
        `correction` set; later ones are in the stream `late` of the result. Sessions need `merge(folded, folded)`.
        """
        if (add is None) == (not aggregates):
            raise GraphError(
                f"operator {name!r}: a window takes either a function or aggregates, such as total=sum_(…)"
            )
        nanos = nanoseconds(allowed_lateness, f"operator {name!r}: the allowed lateness")
        operator: Operator
        if add is not None:
            spec = _checked(name, state_spec(_function(name, add), 0, state, default, None, 1))
            fold = Fold(spec.factory(), add, merge)
            if isinstance(windows, Session):
                operator = SessionWindows(windows=windows, fold=fold, lateness=nanos, type=spec.type)
            else:
                operator = FixedWindows(windows=windows, fold=fold, lateness=nanos, type=spec.type)
        elif isinstance(windows, Session):
            operator = session_aggregates(windows, nanos, _aggregates(name, aggregates))
        else:
            operator = FixedAggregates(Panes(windows, nanos), _aggregates(name, aggregates))
        return WindowedStream(self.job, self._then(name, operator))

    def ttl_map(
        self, name: str, function: Callable[[Message, ExpiringMap], Any], *, returns: Any = None
    ) -> KeyedStream:
        """Call `function(message, entries)` with a map per key whose entries expire, and go on with what it returns.

        `entries.put(key, value, expires=time)` keeps an entry until the epoch reaches that time.
        """
        return KeyedStream(self.job, self._then(name, TtlMap(_function(name, function), returns)))

    def deduplicate(self, name: str, horizon: Duration, by: Callable[[Any], Any] | None = None) -> KeyedStream:
        """Let one message of each key through, and none that comes within `horizon` of it; `by` tells a key's messages apart."""
        return KeyedStream(
            self.job, self._then(name, Deduplicate(nanoseconds(horizon, f"operator {name!r}: the horizon", 1), by))
        )

    def interval_join(
        self,
        name: str,
        right: KeyedStream,
        *,
        before: Duration = 0,
        after: Duration = 0,
        how: How = "inner",
        function: Callable[[Any, Any], Any] = Joined,
        returns: Any = None,
    ) -> KeyedStream:
        """Pair each message with those of `right` that have its key and are at most `before` earlier or `after` later.

        Emits `function(left, right)`, a `Joined` by default, at the later of the two times. With `how` left, right or full, a
        message that finds no partner is emitted with None once none can come.
        """
        check_how(how, "inner", "left", "right", "full")
        earlier = nanoseconds(before, f"operator {name!r}: before")
        later = nanoseconds(after, f"operator {name!r}: after")
        return self._joined(name, right, IntervalJoin(how, function, returns, *self._sides(right), earlier, later))

    def window_join(
        self,
        name: str,
        right: KeyedStream,
        windows: Windows,
        *,
        how: How = "inner",
        function: Callable[[Any, Any], Any] = Joined,
        returns: Any = None,
    ) -> WindowedStream:
        """Pair each message with those of `right` that have its key and are in the same tumbling or sliding window.

        A window's pairs are emitted when the epoch passes its end. Messages for windows that have ended are in the stream `late`.
        """
        check_how(how, "inner", "left", "right", "full")
        if not isinstance(windows, Fixed):
            raise GraphError(f"operator {name!r}: a window join takes tumbling or sliding windows")
        joined = self._joined(name, right, WindowJoin(how, function, returns, *self._sides(right), windows))
        return WindowedStream(self.job, joined.port)

    def as_of_join(
        self,
        name: str,
        right: KeyedStream,
        *,
        tolerance: Duration | None = None,
        how: How = "left",
        function: Callable[[Any, Any], Any] = Joined,
        returns: Any = None,
    ) -> KeyedStream:
        """Give each message the value of `right` that was the last known for its key at its time, at most `tolerance` old.

        It is emitted when the epoch reaches its time; with `how` inner only if there was a value.
        """
        check_how(how, "inner", "left")
        limit = None if tolerance is None else nanoseconds(tolerance, f"operator {name!r}: the tolerance")
        return self._joined(name, right, AsOfJoin(how, function, returns, *self._sides(right), limit))

    def _sides(self, right: KeyedStream) -> tuple[Shape, Shape]:
        if not isinstance(right, KeyedStream):
            raise GraphError("a join is of two streams with keys; put key_by before both")
        return self.job.graph.shape(self.port), self.job.graph.shape(right.port)

    def _joined(self, name: str, right: KeyedStream, operator: Operator) -> KeyedStream:
        return KeyedStream(self.job, Port(self.job.graph.add(name, operator, (self.port, right.port)).id))


class WindowedStream(KeyedStream):
    """The results of windows, and beside them what came too late for any."""

    def _at(self, port: Port) -> Any:
        # What follows is an ordinary stream: only the windows themselves have a late one beside them.
        return KeyedStream(self.job, port)

    @property
    def late(self) -> KeyedStream:
        """The messages that came too late, as they were."""
        return KeyedStream(self.job, Port(self.port.node, LATE))


def _aggregates(name: str, aggregates: dict[str, Any]) -> dict[str, Aggregate]:
    for label, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise GraphError(
                f"operator {name!r}: {label}={aggregate!r} is not an aggregate; use sum_, count, min_, max_ or mean"
            )
    return aggregates


def _function(name: str, function: Any) -> Any:
    if not callable(function):
        raise GraphError(
            f"operator {name!r}: it takes a function as its second argument, not {type(function).__name__}"
        )
    return function


def _ttl(name: str, duration: Duration | None, clock: Clock) -> Ttl | None:
    return None if duration is None else Ttl(nanoseconds(duration, f"operator {name!r}: the ttl", 1), clock)


def _silence(option: str, duration: Duration | None) -> int | None:
    return None if duration is None else nanoseconds(duration, option)


def _checked(name: str, spec: StateSpec) -> StateSpec:
    try:
        spec.factory()
    except GraphError as error:
        raise GraphError(f"operator {name!r}: {error}") from None
    return spec
