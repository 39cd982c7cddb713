"""Stream and KeyedStream: how a program is written, one named step after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from tidewheel.errors import GraphError
from tidewheel.graph import Port
from tidewheel.logic import StatefulLogic
from tidewheel.operators.aggregate import AggregateBy
from tidewheel.operators.aggregates import Aggregate
from tidewheel.operators.base import Operator
from tidewheel.operators.filter import Filter
from tidewheel.operators.flat_map import FilterMap, FlatMap
from tidewheel.operators.inspect import Inspect
from tidewheel.operators.key_by import KeyBy
from tidewheel.operators.map import Map
from tidewheel.operators.map_batches import MapBatches
from tidewheel.operators.reduce import Reduce
from tidewheel.operators.sink import SinkOperator
from tidewheel.operators.stateful_map import StatefulMap, StateSpec, state_spec
from tidewheel.operators.stateful_op import StatefulOp, as_logic
from tidewheel.sinks.base import Sink
from tidewheel.state.codec import Codec

if TYPE_CHECKING:
    from tidewheel.job import Job


class Stream:
    """Messages without a key. Every step takes its name first and returns the stream behind it."""

    def __init__(self, job: Job, port: Port) -> None:
        """Made by `Job.source` and by the steps themselves."""
        self.job = job
        self.port = port

    def _then(self, name: str, operator: Operator) -> Port:
        return Port(self.job.graph.add(name, operator, (self.port,)).id)

    def _same(self, name: str, operator: Operator) -> Self:
        return type(self)(self.job, self._then(name, operator))

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
        codec: Codec | None = None,
        version: int = 1,
    ) -> KeyedStream:
        """Call `function(key, value, state)`, which returns `(output, new_state)`, for each message.

        A key seen first, or dropped before by a `new_state` of None, gets `default` (called, if callable; copied, if
        mutable), or what the state's type makes from nothing. `state` declares that type; the annotation of the
        function's third parameter serves as well. `name` is the identity of the state.
        """
        spec = state_spec(_function(name, function), 2, state, default, codec, version)
        return KeyedStream(self.job, self._then(name, StatefulMap(function, _checked(name, spec), returns)))

    def stateful_op(
        self,
        name: str,
        logic: StatefulLogic[Any] | Callable[..., Any],
        *,
        default: Any = None,
        state: Any = None,
        returns: Any = None,
        codec: Codec | None = None,
        version: int = 1,
    ) -> KeyedStream:
        """Run a `StatefulLogic`: any number of messages out, epochs and schedules; or a function in place of its `on_data`."""
        if isinstance(logic, type) and issubclass(logic, StatefulLogic):
            raise GraphError(f"operator {name!r}: it takes a logic and not its class; give {logic.__name__}(…)")
        wrapped = as_logic(logic)
        function = logic.on_data if isinstance(logic, StatefulLogic) else _function(name, logic)
        spec = state_spec(function, 1, state, default, codec, version)
        return KeyedStream(self.job, self._then(name, StatefulOp(wrapped, _checked(name, spec), returns)))

    def aggregate(self, name: str, **aggregates: Aggregate) -> KeyedStream:
        """Keep aggregates of each key, column-wise: `aggregate("totals", total=sum_("amount"), n=count())`.

        Emits, once per batch and touched key, a row with one attribute per aggregate.
        """
        for label, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise GraphError(
                    f"operator {name!r}: {label}={aggregate!r} is not an aggregate; use sum_, count, min_, max_ or mean"
                )
        return KeyedStream(self.job, self._then(name, AggregateBy(aggregates)))

    def reduce(
        self,
        name: str,
        function: Callable[[Any, Any], Any],
        *,
        state: Any = None,
        codec: Codec | None = None,
        version: int = 1,
    ) -> KeyedStream:
        """Fold the values of each key with an associative function; emits the result once per batch and touched key."""
        spec = StateSpec(state, None, codec, version)
        return KeyedStream(self.job, self._then(name, Reduce(_function(name, function), spec)))


def _function(name: str, function: Any) -> Any:
    if not callable(function):
        raise GraphError(
            f"operator {name!r}: it takes a function as its second argument, not {type(function).__name__}"
        )
    return function


def _checked(name: str, spec: StateSpec) -> StateSpec:
    try:
        spec.factory()
    except GraphError as error:
        raise GraphError(f"operator {name!r}: {error}") from None
    return spec
