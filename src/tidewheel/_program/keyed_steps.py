"""KeyedSteps: the return types of the steps of a keyed stream: a stream with the same keys.

This module only declares types. `Stream` and its base classes implement and document the steps.
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, overload

from tidewheel._operators.graph import Port
from tidewheel._program.stream import Stream
from tidewheel._values.type_variables import Key, Value

if TYPE_CHECKING:
    import pyarrow as pa

    from tidewheel._codecs.base import PayloadCodec
    from tidewheel._operators.logic import Message
    from tidewheel._operators.stateless.expect import Otherwise
    from tidewheel._program.arguments import Errors
    from tidewheel._program.call_steps import CallArguments
    from tidewheel._program.keyed_stream import KeyedStream
    from tidewheel._program.parts import Branches
    from tidewheel._program.side_outputs import KeyedDecodedStream, KeyedTimedStream
    from tidewheel._time.duration import Duration, Unit
    from tidewheel._values import Row
    from tidewheel._values.expressions import Expression

New = TypeVar("New")


class KeyedSteps(Stream[Value], Generic[Key, Value]):
    """A keyed stream. The steps of `Stream` keep its keys."""

    def _at(self, port: Port) -> KeyedStream[Any, Any]:
        from tidewheel._program.keyed_stream import KeyedStream

        return KeyedStream(self.job, port)

    if TYPE_CHECKING:

        @overload
        def map(
            self,
            name: str,
            function: Callable[[Key, Value], New],
            *,
            with_key: Literal[True],
            returns: Any = None,
            retry: Errors = (),
        ) -> KeyedStream[Key, New]: ...
        @overload
        def map(
            self,
            function: Callable[[Key, Value], New],
            /,
            *,
            with_key: Literal[True],
            returns: Any = None,
            retry: Errors = (),
        ) -> KeyedStream[Key, New]: ...
        @overload
        def map(
            self, name: str, function: str, *, returns: Any = None, retry: Errors = ()
        ) -> KeyedStream[Key, Any]: ...
        @overload
        def map(
            self, name: str, function: Callable[[Value], Any], *, returns: type[New], retry: Errors = ()
        ) -> KeyedStream[Key, New]: ...
        @overload
        def map(
            self, name: str, function: Callable[[Value], New], *, returns: UnionType | None = None, retry: Errors = ()
        ) -> KeyedStream[Key, New]: ...
        @overload
        def map(
            self, function: Callable[[Value], Any], /, *, returns: type[New], retry: Errors = ()
        ) -> KeyedStream[Key, New]: ...
        @overload
        def map(
            self, function: Callable[[Value], New], /, *, returns: UnionType | None = None, retry: Errors = ()
        ) -> KeyedStream[Key, New]: ...
        def map(self, name: Any = None, function: Any = None, **options: Any) -> Any: ...

        @overload
        def filter(
            self, name: str, function: Callable[[Key, Value], Any], *, with_key: Literal[True], retry: Errors = ()
        ) -> KeyedStream[Key, Value]: ...
        @overload
        def filter(
            self, function: Callable[[Key, Value], Any], /, *, with_key: Literal[True], retry: Errors = ()
        ) -> KeyedStream[Key, Value]: ...
        @overload
        def filter(
            self, name: str, function: Callable[[Value], Any] | Expression | str, *, retry: Errors = ()
        ) -> KeyedStream[Key, Value]: ...
        @overload
        def filter(
            self, function: Callable[[Value], Any] | Expression, /, *, retry: Errors = ()
        ) -> KeyedStream[Key, Value]: ...
        def filter(self, name: Any = None, function: Any = None, **options: Any) -> Any: ...

        @overload
        def expect(
            self,
            name: str,
            condition: Callable[[Value], Any] | Expression | str,
            *,
            otherwise: Otherwise = "stop",
            retry: Errors = (),
            with_key: Literal[False] = False,
        ) -> KeyedStream[Key, Value]: ...
        @overload
        def expect(
            self,
            name: str,
            condition: Callable[[Key, Value], Any],
            *,
            otherwise: Otherwise = "stop",
            retry: Errors = (),
            with_key: Literal[True],
        ) -> KeyedStream[Key, Value]: ...
        def expect(self, name: str, condition: Any, **options: Any) -> Any: ...

        @overload
        def map_async(
            self,
            name: str,
            function: Callable[..., Any],
            *,
            returns: type[New],
            combine: Callable[[Value, Any], Any] | None = None,
            batch: int | None = None,
            **options: Unpack[CallArguments],
        ) -> KeyedStream[Key, New]: ...
        @overload
        def map_async(
            self,
            name: str,
            function: Callable[..., Any],
            *,
            combine: Callable[[Value, Any], New],
            batch: int | None = None,
            **options: Unpack[CallArguments],
        ) -> KeyedStream[Key, New]: ...
        @overload
        def map_async(
            self,
            name: str,
            function: Callable[..., Awaitable[Sequence[New]]] | Callable[..., Sequence[New]],
            *,
            batch: int,
            **options: Unpack[CallArguments],
        ) -> KeyedStream[Key, New]: ...
        @overload
        def map_async(
            self, name: str, function: Callable[..., Awaitable[New]], **options: Unpack[CallArguments]
        ) -> KeyedStream[Key, New]: ...
        @overload
        def map_async(
            self, name: str, function: Callable[..., New], **options: Unpack[CallArguments]
        ) -> KeyedStream[Key, New]: ...
        def map_async(self, name: str, function: Any, **options: Any) -> Any: ...

        def with_columns(self, name: str | None = None, /, **columns: Expression) -> KeyedStream[Key, Row]: ...

        @overload
        def select(self, name: str, /, *columns: str, **computed: Expression) -> KeyedStream[Key, Row]: ...
        @overload
        def select(self, columns: list[str] = ..., /, **computed: Expression) -> KeyedStream[Key, Row]: ...
        def select(self, name: Any = None, /, *columns: str, **computed: Any) -> Any: ...

        @overload
        def filter_map(
            self,
            name: str,
            function: Callable[[Key, Value], New | None],
            *,
            with_key: Literal[True],
            returns: Any = None,
            retry: Errors = (),
        ) -> KeyedStream[Key, New]: ...
        @overload
        def filter_map(
            self,
            function: Callable[[Key, Value], New | None],
            /,
            *,
            with_key: Literal[True],
            returns: Any = None,
            retry: Errors = (),
        ) -> KeyedStream[Key, New]: ...
        @overload
        def filter_map(
            self, name: str, function: str, *, returns: Any = None, retry: Errors = ()
        ) -> KeyedStream[Key, Any]: ...
        @overload
        def filter_map(
            self, name: str, function: Callable[[Value], Any], *, returns: type[New], retry: Errors = ()
        ) -> KeyedStream[Key, New]: ...
        @overload
        def filter_map(
            self,
            name: str,
            function: Callable[[Value], New | None],
            *,
            returns: UnionType | None = None,
            retry: Errors = (),
        ) -> KeyedStream[Key, New]: ...
        @overload
        def filter_map(
            self, function: Callable[[Value], Any], /, *, returns: type[New], retry: Errors = ()
        ) -> KeyedStream[Key, New]: ...
        @overload
        def filter_map(
            self,
            function: Callable[[Value], New | None],
            /,
            *,
            returns: UnionType | None = None,
            retry: Errors = (),
        ) -> KeyedStream[Key, New]: ...
        def filter_map(self, name: Any = None, function: Any = None, **options: Any) -> Any: ...

        @overload
        def flat_map(
            self,
            name: str,
            function: Callable[[Key, Value], Iterable[New]],
            *,
            with_key: Literal[True],
            returns: Any = None,
            retry: Errors = (),
        ) -> KeyedStream[Key, New]: ...
        @overload
        def flat_map(
            self,
            function: Callable[[Key, Value], Iterable[New]],
            /,
            *,
            with_key: Literal[True],
            returns: Any = None,
            retry: Errors = (),
        ) -> KeyedStream[Key, New]: ...
        @overload
        def flat_map(
            self, name: str, function: str, *, returns: Any = None, retry: Errors = ()
        ) -> KeyedStream[Key, Any]: ...
        @overload
        def flat_map(
            self, name: str, function: Callable[[Value], Iterable[Any]], *, returns: type[New], retry: Errors = ()
        ) -> KeyedStream[Key, New]: ...
        @overload
        def flat_map(
            self,
            name: str,
            function: Callable[[Value], Iterable[New]],
            *,
            returns: UnionType | None = None,
            retry: Errors = (),
        ) -> KeyedStream[Key, New]: ...
        @overload
        def flat_map(
            self, function: Callable[[Value], Iterable[Any]], /, *, returns: type[New], retry: Errors = ()
        ) -> KeyedStream[Key, New]: ...
        @overload
        def flat_map(
            self,
            function: Callable[[Value], Iterable[New]],
            /,
            *,
            returns: UnionType | None = None,
            retry: Errors = (),
        ) -> KeyedStream[Key, New]: ...
        def flat_map(self, name: Any = None, function: Any = None, **options: Any) -> Any: ...

        @overload
        def inspect(
            self, name: str, function: Callable[[Key, Value], Any], *, with_key: Literal[True], retry: Errors = ()
        ) -> KeyedStream[Key, Value]: ...
        @overload
        def inspect(
            self, function: Callable[[Key, Value], Any], /, *, with_key: Literal[True], retry: Errors = ()
        ) -> KeyedStream[Key, Value]: ...
        @overload
        def inspect(
            self, name: str, function: Callable[[Value], Any], *, retry: Errors = ()
        ) -> KeyedStream[Key, Value]: ...
        @overload
        def inspect(self, function: Callable[[Value], Any], /, *, retry: Errors = ()) -> KeyedStream[Key, Value]: ...
        def inspect(self, name: Any = None, function: Any = None, **options: Any) -> Any: ...

        @overload
        def map_batches(
            self,
            name: str,
            function: Callable[[pa.RecordBatch], pa.RecordBatch],
            *,
            returns: type[New],
            retry: Errors = (),
        ) -> KeyedStream[Key, New]: ...
        @overload
        def map_batches(
            self,
            name: str,
            function: Callable[[pa.RecordBatch], pa.RecordBatch],
            *,
            returns: None = None,
            retry: Errors = (),
        ) -> KeyedStream[Key, Row]: ...
        @overload
        def map_batches(
            self,
            function: Callable[[pa.RecordBatch], pa.RecordBatch],
            /,
            *,
            returns: type[New],
            retry: Errors = (),
        ) -> KeyedStream[Key, New]: ...
        @overload
        def map_batches(
            self,
            function: Callable[[pa.RecordBatch], pa.RecordBatch],
            /,
            *,
            returns: None = None,
            retry: Errors = (),
        ) -> KeyedStream[Key, Row]: ...
        def map_batches(
            self, name: Any = None, function: Any = None, *, returns: Any = None, retry: Errors = ()
        ) -> Any: ...

        def decode(
            self, name: str, codec: PayloadCodec[New], *, column: str = "value", retry: Errors = ()
        ) -> KeyedDecodedStream[Key, New]: ...

        # The parameter type is the same as in Stream: a union with a stream without keys is refused when the graph is
        # built.
        def union(self, name: str | Stream[New], *others: Stream[New]) -> KeyedStream[Key, Value | New]: ...

        def split(
            self, name: str, outputs: int, function: Callable[[Value], int | Iterable[int]]
        ) -> tuple[KeyedStream[Key, Value], ...]: ...

        @overload
        def branch(self, name: str, *predicates: Callable[[Value], Any]) -> tuple[KeyedStream[Key, Value], ...]: ...
        @overload
        def branch(self, name: str, **named: Callable[[Value], Any]) -> Branches[KeyedStream[Key, Value]]: ...
        def branch(self, name: str, *predicates: Any, **named: Any) -> Any: ...

        def event_time(
            self,
            time: str | Callable[[Value], int | datetime.datetime],
            *,
            max_delay: Duration,
            unit: Unit | None = None,
            idle_after: Duration | None = ...,
            advance_after: Duration | None = None,
            partition: str | Callable[[Value], Any] | None = None,
            max_ahead: Duration | None = ...,
            name: str = "event-time",
        ) -> KeyedTimedStream[Key, Value]: ...

        def assign_timestamps(
            self,
            name: str,
            time: str | Callable[[Value], int | datetime.datetime],
            *,
            unit: Unit | None = None,
            max_ahead: Duration | None = None,
        ) -> KeyedStream[Key, Value]: ...

        def generate_epochs(
            self,
            name: str,
            function: Callable[[Message[Any, Value], Any], Any],
            *,
            idle_after: Duration | None = ...,
            advance_after: Duration | None = None,
            partition: str | Callable[[Value], Any] | None = None,
            max_ahead: Duration | None = ...,
        ) -> KeyedTimedStream[Key, Value]: ...

        def limit_out_of_orderness(
            self,
            name: str,
            bound: Duration,
            *,
            idle_after: Duration | None = ...,
            advance_after: Duration | None = None,
            partition: str | Callable[[Value], Any] | None = None,
            max_ahead: Duration | None = ...,
        ) -> KeyedTimedStream[Key, Value]: ...

        def inspect_frontier(self, name: str, function: Callable[[Any], Any]) -> KeyedStream[Key, Value]: ...
