"""Stream: messages without a key, and the steps that do not need one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from tidewheel._codecs.base import PayloadCodec, payload_codec
from tidewheel._codecs.debezium import Change
from tidewheel._connectors.keyed_rows import KeyedRows
from tidewheel._connectors.sink import Sink
from tidewheel._operators.aggregates.operator import ColumnAggregates
from tidewheel._operators.field_getter import FieldGetter
from tidewheel._operators.graph import Port
from tidewheel._operators.keyed.key_by import KeyBy
from tidewheel._operators.keyed.upserts import DELETED, KeyOfChange, Upserts, time_of_change, upserts_at
from tidewheel._operators.stateless.decode import Decode
from tidewheel._operators.stateless.sink import SinkOperator
from tidewheel._operators.stateless.split import Chooser, Split
from tidewheel._operators.stateless.union import Union
from tidewheel._operators.timestamps.assign_timestamps import AssignTimestamps
from tidewheel._program.arguments import Errors, checked_function
from tidewheel._program.call_steps import CallSteps
from tidewheel._program.column_steps import ColumnSteps
from tidewheel._program.function_steps import FunctionSteps
from tidewheel._program.lookup_steps import LookupSteps
from tidewheel._program.parts import Branches, numbered
from tidewheel._program.time_steps import TimeSteps
from tidewheel._values.type_variables import Value
from tidewheel.errors import ConfigError, GraphError

if TYPE_CHECKING:
    from tidewheel._program.keyed_stream import KeyedStream
    from tidewheel._program.side_outputs import DecodedStream

New = TypeVar("New")
"""The type of the values that a step emits."""
NewKey = TypeVar("NewKey")


class Stream(FunctionSteps[Value], ColumnSteps[Value], CallSteps[Value], LookupSteps[Value], TimeSteps[Value]):
    """Messages without a key. Each step returns the resulting stream; its first argument is its name.

    A name has letters, digits, '_', '-' and '.', and is unique in its job: it identifies the step's state. Steps without
    state can do without a name: `stream.map(function)` is then called `map:function`, or `map:3` after its position.
    Stateful steps are methods of `KeyedStream`: call `key_by` first.
    """

    def _at(self, port: Port) -> Stream[Any]:
        return Stream(self.job, port)

    def decode(
        self, name: str, codec: PayloadCodec[New], *, column: str = "value", retry: Errors = ()
    ) -> DecodedStream[New]:
        """Decode payloads and return the records. Messages that fail to decode are in the stream `broken` of the result.

        A broken message keeps its columns, including the raw bytes, and gets a column `error`. The stream `broken`
        needs a sink, which receives the messages in the same commit as the other records. Keys and timestamps stay.

        - `name`: required, because the broken messages are counted by name, as `name/dead` in the job's counts.
        - `codec`: one of `tidewheel.codecs`.
        - `column`: the column that holds the payloads, as bytes or text.
        - `retry`: exceptions of the codec that are transient, as in `map`.

        >>> from tidewheel import Job, codecs, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("decoded")
        >>> payloads = job.source("in", sources.iterable([b'{"user": "ada"}', b"?"]))
        >>> records = payloads.decode("json", codecs.json())
        >>> _ = records.sink("out", sinks.collect()), records.broken.sink("broken", sinks.collect())
        >>> outputs = run_in_memory(job).outputs
        >>> outputs["out"], outputs["broken"][0]["value"]
        ([{'user': 'ada'}], b'?')
        """
        from tidewheel._program.keyed_stream import KeyedStream
        from tidewheel._program.side_outputs import DecodedStream, KeyedDecodedStream

        kind = KeyedDecodedStream if isinstance(self, KeyedStream) else DecodedStream
        return kind(self.job, self._then(name, Decode(payload_codec(codec), column), retry))

    def union(self, name: str | Stream[New], *others: Stream[New]) -> Stream[Value | New]:
        """Merge this stream and the others into one. The order of messages from different streams is undefined.

        - `others`: streams of the same job; either all streams have keys or none has.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("both")
        >>> web, shop = job.source("web", sources.iterable([1, 2])), job.source("shop", sources.iterable([7]))
        >>> _ = web.union("all", shop).sink("out", sinks.collect())
        >>> sorted(record["value"] for record in run_in_memory(job).outputs["out"])
        [1, 2, 7]
        """
        from tidewheel._program.keyed_stream import KeyedStream

        if not isinstance(name, str):
            others = (name, *others)
            name = self.job.graph.automatic_name("union", None)
        ports = (self.port, *(self._port_of(name, other) for other in others))
        if any(isinstance(other, KeyedStream) != isinstance(self, KeyedStream) for other in others):
            raise GraphError(f"step {name!r}: a union is of streams that all have keys, or none of them")
        return self._at(Port(self.job.graph.add(name, Union(), ports).id))

    def split(
        self, name: str, outputs: int, function: Callable[[Value], int | Iterable[int]]
    ) -> tuple[Stream[Value], ...]:
        """Divide the stream into several streams and return them.

        A message that goes to no output is dropped. Use `branch` to give the streams names.

        - `name`: required, because dropped messages are counted by name, as `name/dropped` in the job's counts.
        - `outputs`: the number of streams to return, at least one.
        - `function`: returns the index of the output for a value, from 0 on, or several indexes, or none.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("parted")
        >>> even, odd = job.source("in", sources.iterable([1, 2, 3])).split("parity", 2, lambda n: n % 2)
        >>> _ = even.sink("even", sinks.collect()), odd.sink("odd", sinks.collect())
        >>> run_in_memory(job).outputs
        {'even': [{'value': 2}], 'odd': [{'value': 1}, {'value': 3}]}
        """
        if isinstance(outputs, bool) or not isinstance(outputs, int) or outputs < 1:
            raise GraphError(f"step {name!r}: a split has at least one output, not {outputs!r}")
        operator = Split(checked_function(name, function, "value"), outputs)
        node = self._then(name, operator).node
        return numbered(operator.step, tuple(self._at(Port(node, output)) for output in range(outputs)))

    @overload
    def branch(self, name: str, *predicates: Callable[[Value], Any]) -> tuple[Stream[Value], ...]: ...
    @overload
    def branch(self, name: str, **named: Callable[[Value], Any]) -> Branches[Stream[Value]]: ...
    def branch(self, name: str, *predicates: Callable[[Value], Any], **named: Callable[[Value], Any]) -> Any:
        """Divide the stream by predicates; return one stream per predicate, as an attribute of that name.

        A message can be in several of the streams. A message that is in none is dropped and counted, as in `split`.

        - `name`: required, as in `split`.
        - `predicates`: functions of the value; each stream has the messages for which its predicate returns a true
          value. Predicates without names give a tuple of streams.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("sizes")
        >>> sizes = job.source("in", sources.iterable([1, 5, 9])).branch("size", low=lambda n: n < 6, high=lambda n: n > 3)
        >>> _ = sizes.low.sink("low", sinks.collect()), sizes.high.sink("high", sinks.collect())
        >>> run_in_memory(job).outputs
        {'low': [{'value': 1}, {'value': 5}], 'high': [{'value': 5}, {'value': 9}]}
        """
        if predicates and named:
            raise GraphError(f"step {name!r}: a branch takes predicates with names or without, not both")
        chosen = predicates or tuple(named.values())
        chooser = Chooser(tuple(checked_function(name, predicate, "value") for predicate in chosen))
        streams = self.split(name, len(chosen), chooser)
        return streams if predicates else Branches(name, dict(zip(named, streams, strict=True)))

    def clone(self, copies: int = 2) -> tuple[Self, ...]:
        """Return the stream several times; each copy gets every message. This is not a step and has no name.

        - `copies`: the number of copies.

        >>> from tidewheel import Job, sources
        >>> one, two = Job("twice").source("in", sources.iterable([1])).clone()
        """
        return numbered("clone", (self,) * copies)

    @overload
    def key_by(self, name: str, key: str, *, value: None = None, retry: Errors = ()) -> KeyedStream[Any, Value]: ...
    @overload
    def key_by(
        self, name: str, key: Callable[[Value], NewKey], *, value: None = None, retry: Errors = ()
    ) -> KeyedStream[NewKey, Value]: ...
    @overload
    def key_by(self, name: str, key: str, *, value: str, retry: Errors = ()) -> KeyedStream[Any, Any]: ...
    @overload
    def key_by(
        self, name: str, key: Callable[[Value], NewKey], *, value: str, retry: Errors = ()
    ) -> KeyedStream[NewKey, Any]: ...
    @overload
    def key_by(self, key: str, /, *, value: None = None, retry: Errors = ()) -> KeyedStream[Any, Value]: ...
    @overload
    def key_by(
        self, key: Callable[[Value], NewKey], /, *, value: None = None, retry: Errors = ()
    ) -> KeyedStream[NewKey, Value]: ...
    @overload
    def key_by(self, key: str, /, *, value: str, retry: Errors = ()) -> KeyedStream[Any, Any]: ...
    @overload
    def key_by(
        self, key: Callable[[Value], NewKey], /, *, value: str, retry: Errors = ()
    ) -> KeyedStream[NewKey, Any]: ...
    @overload
    def key_by(
        self, name: str, key: Callable[[Any, Value], NewKey], *, with_key: Literal[True], retry: Errors = ()
    ) -> KeyedStream[NewKey, Value]: ...
    @overload
    def key_by(
        self, key: Callable[[Any, Value], NewKey], /, *, with_key: Literal[True], retry: Errors = ()
    ) -> KeyedStream[NewKey, Value]: ...
    def key_by(
        self,
        name: Any = None,
        key: Any = None,
        *,
        value: str | None = None,
        retry: Errors = (),
        with_key: bool = False,
    ) -> KeyedStream[Any, Any]:
        """Give each message a key. Later steps handle all messages of one key in one place, in source order.

        - `key`: a column, or a function of the value. A key is a string, a 64-bit integer, bytes, a boolean, a float,
          or a tuple of these; all keys of one `key_by` have the same type.
        - `value`: the only column that the rest of the program needs: it becomes the value, and other columns are
          dropped.
        - `retry`: as in `map`.
        - `with_key`: call the function with the previous key and the value.

        Results of `aggregate` and of windows get a column with their previous key, named like the previous key column. A
        tuple becomes a struct with the fields `_1`, `_2` and so on. A `WindowResult`, which a window with a function emits,
        becomes a `Row` with that column.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("spent")
        >>> orders = job.source("in", sources.iterable([{"user": "ada", "cents": 250}, {"user": "ada", "cents": 100}]))
        >>> _ = orders.key_by("by-user", "user", value="cents").reduce("spent", max).sink("out", sinks.collect())
        >>> run_in_memory(job).outputs["out"]
        [{'user': 'ada', 'cents': 250}]
        """
        name, key = self._named("key_by", name, key)
        from tidewheel._program.keyed_stream import KeyedStream

        if not isinstance(key, str) and not callable(key):
            raise GraphError(f"step {name!r}: key_by takes a column's name or a function, not {type(key).__name__}")
        if not isinstance(key, str) or with_key:
            self._function(name, key, with_key)
        operator = KeyBy(key, value, self._key_of_results(), with_key=with_key)
        return KeyedStream(self.job, self._then(name, operator, retry))

    def upserts(
        self,
        name: str,
        key: str | Sequence[str],
        *,
        delete: str | Callable[[Value], Any] | None = None,
        aliases: Sequence[str] = (),
    ) -> KeyedStream[Any, dict[str, Any]]:
        """Keep a table in state, built from inserts, updates and deletes; emit each row that changed.

        The input has changes of `codecs.debezium`, or records of your own, of which each is a whole row. An emitted row is a
        dict with the columns of the table and `_deleted`, which is true if the row was deleted. A change that changes
        nothing emits nothing. Join other streams with the table by `as_of_join`. The sinks `delta` and `iceberg`
        (`mode="merge"`) and `postgres` (`mode="upsert"` or `"latest"`) take the stream as it is: they update and delete rows by
        `key`.

        - `key`: the columns of the primary key: one, or several.
        - `delete`: for records of your own, a column or a function of the record: if true, the row is deleted. The column
          is not part of the row.
        - `aliases`: former names of the step, whose state it takes over.

        The steps before it in the graph are `NAME.keys` and, if a change gives its message the time that it has in the
        database, because the stream has no timestamps, `NAME.timestamps`.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("customers")
        >>> changes = [{"id": 1, "city": "Rome"}, {"id": 1, "city": "Oslo"}, {"id": 2, "gone": True}, {"id": 1, "gone": True}]
        >>> table = job.source("in", sources.iterable(changes)).upserts("customers", key="id", delete="gone")
        >>> _ = table.sink("out", sinks.collect())
        >>> [(record["city"], record["_deleted"]) for record in run_in_memory(job).outputs["out"]]
        [('Rome', False), ('Oslo', False), ('Oslo', True)]
        """
        from tidewheel._program.keyed_stream import KeyedStream

        columns = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, Sequence) else ()
        if not columns or not all(isinstance(column, str) and column for column in columns):
            raise GraphError(f"step {name!r}: key= names the columns of the primary key: one, or several, not {key!r}")
        chosen = FieldGetter(delete) if isinstance(delete, str) else delete and checked_function(name, delete, "record")
        graph, stream = self.job.graph, self
        shape = graph.shape(self.port)
        if shape.type is Change:
            if delete is not None:
                raise GraphError(f"step {name!r}: the changes of codecs.debezium name their deletes; remove delete=")
            if not graph.nodes[self.port.node].timed:
                stream = stream._same(f"{name}.timestamps", AssignTimestamps(time_of_change))
        keyed = stream.key_by(f"{name}.keys", KeyOfChange(columns))
        self.job.alias(name, *aliases)
        without = delete if isinstance(delete, str) else None
        return KeyedStream(self.job, keyed._then(name, Upserts(columns, chosen or None, without)))

    def _key_of_results(self) -> str | None:
        """Return the name of the key column if the stream has results of aggregates or windows, which do not contain it."""
        nodes = self.job.graph.nodes
        node = nodes[self.port.node]
        while not isinstance(node.operator, ColumnAggregates) and node.operator.kind != "window":
            if node.key_name is None or isinstance(node.operator, KeyBy) or not node.inputs:
                return None
            node = nodes[node.inputs[0].node]
        return node.key_name

    def sink(self, name: str, sink: Sink[Value], *, key: str | Literal[False] | None = None) -> Self:
        """Write the stream to a sink. Return the stream itself, which can have several sinks and further steps.

        - `sink`: one of `tidewheel.sinks`, or your own `Sink`.
        - `key`: for a keyed stream, the name of the key column; False omits it. None uses the column name passed to
          `key_by`, or `key`, and omits the column if the values already have a column of that name. Kafka uses this
          column as the message key, and PostgreSQL as the key of rows (`upsert`, `latest`), unless the sink has a `key=`.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("kept")
        >>> numbers = job.source("in", sources.iterable([1])).key_by("by-parity", lambda n: n % 2)
        >>> _ = numbers.sink("one", sinks.collect(), key="odd").sink("two", sinks.collect(), key=False)
        >>> run_in_memory(job).outputs
        {'one': [{'odd': 1, 'value': 1}], 'two': [{'value': 1}]}
        """
        if not isinstance(sink, Sink):
            raise GraphError(
                f"sink {name!r}: {sink!r} is not a sink; see tidewheel.sinks (files, console, collect, for_each_batch, for_each)"
            )
        key_name = self.job.graph.nodes[self.port.node].key_name
        if key is not None and (key_name is None or not (key is False or (isinstance(key, str) and key))):
            why = "the stream has no keys" if key_name is None else f"{key!r} is not a name"
            raise GraphError(f"sink {name!r}: key= names the key's column, or is False to leave it out, and {why}")
        chosen = key_name if key is None else key or None
        table = upserts_at(self.job.graph, self.port)
        if table is not None:
            if isinstance(sink, KeyedRows):
                sink = sink.taking_changes(table.columns, DELETED)
            # Rows of upserts have the columns of their key.
            chosen = chosen if key is not None or len(table.columns) == 1 else None
        try:
            keyed = sink.keyed_by(chosen)
        except ConfigError as error:
            raise GraphError(f"sink {name!r}: {error}") from None
        self._then(name, SinkOperator(keyed, chosen, isinstance(key, str)))
        return self
