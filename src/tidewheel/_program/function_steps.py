"""FunctionSteps: steps that call a function with each value, or with whole batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, overload

import pyarrow as pa

from tidewheel._operators.stateless.expect import Expect, Otherwise
from tidewheel._operators.stateless.expressions import Where
from tidewheel._operators.stateless.filter import Filter
from tidewheel._operators.stateless.flat_map import FilterMap, FlatMap
from tidewheel._operators.stateless.inspect import Inspect
from tidewheel._operators.stateless.map import Map
from tidewheel._operators.stateless.map_batches import MapBatches
from tidewheel._program.arguments import Errors, checked_function
from tidewheel._program.steps import Steps
from tidewheel._values import Row
from tidewheel._values.expressions import Expression, is_expression
from tidewheel._values.type_variables import Value
from tidewheel.errors import GraphError, KeysNeeded

if TYPE_CHECKING:
    from tidewheel._program.stream import Stream

New = TypeVar("New")
"""The type of the values that a step emits."""


class FunctionSteps(Steps[Value]):
    """Steps that call a function of the program and need no keys."""

    @overload
    def map(self, name: str, function: str, *, returns: Any = None, retry: Errors = ()) -> Stream[Any]: ...
    @overload
    def map(
        self, name: str, function: Callable[[Value], Any], *, returns: type[New], retry: Errors = ()
    ) -> Stream[New]: ...
    @overload
    def map(
        self, name: str, function: Callable[[Value], New], *, returns: UnionType | None = None, retry: Errors = ()
    ) -> Stream[New]: ...
    @overload
    def map(self, function: Callable[[Value], Any], /, *, returns: type[New], retry: Errors = ()) -> Stream[New]: ...
    @overload
    def map(
        self, function: Callable[[Value], New], /, *, returns: UnionType | None = None, retry: Errors = ()
    ) -> Stream[New]: ...
    def map(
        self,
        name: Any = None,
        function: Any = None,
        *,
        returns: Any = None,
        retry: Errors = (),
        with_key: bool = False,
    ) -> Stream[Any]:
        """Replace each value by the function's result.

        - `function`: called with each value; or, after a name, a column, whose values become the values.
        - `returns`: the type of the results, if the function is not annotated. If the type is unknown, sinks infer the
          column types from the values of each batch.
        - `retry`: exception classes that are transient, besides connection errors and time-outs: the batch runs again
          after a pause, and no record goes to the dead letters.
        - `with_key`: on a keyed stream, call the function with key and value. Also in `filter`, `filter_map`,
          `flat_map`, `inspect`, `expect` and `key_by`.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("squares")
        >>> _ = job.source("in", sources.iterable([1, 2, 3])).map("square", lambda n: n * n).sink("out", sinks.collect())
        >>> run_in_memory(job).outputs["out"]
        [{'value': 1}, {'value': 4}, {'value': 9}]
        """
        name, function = self._named("map", name, function)
        return self._same(name, Map(self._function(name, function, with_key), returns, with_key), retry)

    def _function(self, name: str, function: Any, with_key: bool) -> Any:
        """Return the function of a step, which is called with a value, and with the key before it if `with_key` is set."""
        if not with_key:
            return checked_function(name, function, "value")
        if self.job.graph.nodes[self.port.node].key_name is None:
            raise KeysNeeded(f"step {name!r}: with_key= needs a stream with keys: put key_by first")
        if isinstance(function, str) or is_expression(function):
            raise GraphError(f"step {name!r}: with_key= is for a function of key and value, not for {function!r}")
        return checked_function(name, function, "key", "value")

    @overload
    def filter(
        self, name: str, function: Callable[[Value], Any] | Expression | str, *, retry: Errors = ()
    ) -> Stream[Value]: ...
    @overload
    def filter(self, function: Callable[[Value], Any] | Expression, /, *, retry: Errors = ()) -> Stream[Value]: ...
    def filter(
        self, name: Any = None, function: Any = None, *, retry: Errors = (), with_key: bool = False
    ) -> Stream[Value]:
        """Keep the values for which the function returns a true value, or for which an expression is true.

        - `function`: called with each value; or a `pyarrow.compute` expression over columns of the stream, which runs
          without Python code; or, after a name, a column. A null result counts as false.
        - `retry`, `with_key`: as in `map`.

        >>> import pyarrow.compute as pc
        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("odd")
        >>> odd = job.source("in", sources.iterable([1, 2, 3])).filter("odd", lambda n: n % 2)
        >>> _ = odd.filter("large", pc.field("value") > 2).sink("out", sinks.collect())
        >>> run_in_memory(job).outputs["out"]
        [{'value': 3}]
        """
        name, function = self._named("filter", name, function)
        return self._same(name, self._condition(name, "filter", function, with_key), retry)

    def expect(
        self,
        name: str,
        condition: Callable[[Value], Any] | Expression | str,
        *,
        otherwise: Otherwise = "stop",
        retry: Errors = (),
        with_key: Literal[False] = False,
    ) -> Stream[Value]:
        """Check a condition that every record should meet. Return the stream of the records that continue.

        Records that fail the condition are counted: as `name/failed` in the job's counts, in its metrics and history,
        and on the page.

        - `condition`: a function, an expression or a column, as in `filter`. A null result counts as false.
        - `name`: required, because failed records are counted by name, in the metrics too.
        - `otherwise`: what happens to a record that fails. "stop" ends the run with an error that names the record;
          nothing of its batch is committed. "dead" sends the record to the dead-letter sink, "drop" removes it, and
          "warn" passes it on and logs a warning for the commit.
        - `retry`, `with_key`: as in `map`.

        >>> import pyarrow.compute as pc
        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("expected")
        >>> orders = job.source("in", sources.iterable([{"cents": 250}, {"cents": -1}]))
        >>> _ = orders.expect("positive", pc.field("cents") > 0, otherwise="dead").sink("out", sinks.collect())
        >>> job.dead_letter("dead", sinks.collect())
        >>> outputs = run_in_memory(job).outputs
        >>> outputs["out"], outputs["dead"][0]["error"]
        ([{'cents': 250}], 'it does not meet the expectation (cents > 0)')
        """
        if otherwise not in get_args(Otherwise):
            raise GraphError(f"step {name!r}: otherwise= is one of {', '.join(get_args(Otherwise))}, not {otherwise!r}")
        return self._same(name, Expect(self._condition(name, "expect", condition, with_key), otherwise), retry)

    def _condition(self, name: str, step: str, condition: Any, with_key: bool) -> Filter | Where:
        """Return the filter of a condition: an expression, or a function that is called with each value."""
        if is_expression(condition) and not with_key:
            return Where(condition)
        if isinstance(condition, bool):
            raise GraphError(
                f"step {name!r}: {step} was given {condition}, which was computed once, when the program was built; use "
                "a function, such as lambda order: order.cents > 100, which is called with each value"
            )
        return Filter(self._function(name, condition, with_key), with_key)

    @overload
    def filter_map(self, name: str, function: str, *, returns: Any = None, retry: Errors = ()) -> Stream[Any]: ...
    @overload
    def filter_map(
        self, name: str, function: Callable[[Value], Any], *, returns: type[New], retry: Errors = ()
    ) -> Stream[New]: ...
    @overload
    def filter_map(
        self,
        name: str,
        function: Callable[[Value], New | None],
        *,
        returns: UnionType | None = None,
        retry: Errors = (),
    ) -> Stream[New]: ...
    @overload
    def filter_map(
        self, function: Callable[[Value], Any], /, *, returns: type[New], retry: Errors = ()
    ) -> Stream[New]: ...
    @overload
    def filter_map(
        self,
        function: Callable[[Value], New | None],
        /,
        *,
        returns: UnionType | None = None,
        retry: Errors = (),
    ) -> Stream[New]: ...
    def filter_map(
        self,
        name: Any = None,
        function: Any = None,
        *,
        returns: Any = None,
        retry: Errors = (),
        with_key: bool = False,
    ) -> Stream[Any]:
        """Replace each value by the function's result, and drop values whose result is None.

        - `function`: called with each value; or, after a name, a column.
        - `returns`, `retry`, `with_key`: as in `map`.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("sizes")
        >>> words = job.source("in", sources.iterable(["S=3", "note", "M=5"]))
        >>> sizes = words.filter_map("size", lambda word: int(word[2:]) if "=" in word else None)
        >>> _ = sizes.sink("out", sinks.collect())
        >>> run_in_memory(job).outputs["out"]
        [{'value': 3}, {'value': 5}]
        """
        name, function = self._named("filter_map", name, function)
        return self._same(name, FilterMap(self._function(name, function, with_key), returns, with_key), retry)

    @overload
    def flat_map(self, name: str, function: str, *, returns: Any = None, retry: Errors = ()) -> Stream[Any]: ...
    @overload
    def flat_map(
        self, name: str, function: Callable[[Value], Iterable[Any]], *, returns: type[New], retry: Errors = ()
    ) -> Stream[New]: ...
    @overload
    def flat_map(
        self,
        name: str,
        function: Callable[[Value], Iterable[New]],
        *,
        returns: UnionType | None = None,
        retry: Errors = (),
    ) -> Stream[New]: ...
    @overload
    def flat_map(
        self, function: Callable[[Value], Iterable[Any]], /, *, returns: type[New], retry: Errors = ()
    ) -> Stream[New]: ...
    @overload
    def flat_map(
        self,
        function: Callable[[Value], Iterable[New]],
        /,
        *,
        returns: UnionType | None = None,
        retry: Errors = (),
    ) -> Stream[New]: ...
    def flat_map(
        self,
        name: Any = None,
        function: Any = None,
        *,
        returns: Any = None,
        retry: Errors = (),
        with_key: bool = False,
    ) -> Stream[Any]:
        """Replace each value by the items that the function returns, in order.

        - `function`: called with each value; returns an iterable or is a generator; or, after a name, a column of lists.
        - `returns`: the type of one item, as in `map`.
        - `retry`, `with_key`: as in `map`.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("words")
        >>> _ = job.source("in", sources.iterable(["to be", "not"])).flat_map("word", str.split).sink("out", sinks.collect())
        >>> run_in_memory(job).outputs["out"]
        [{'value': 'to'}, {'value': 'be'}, {'value': 'not'}]
        """
        name, function = self._named("flat_map", name, function)
        return self._same(name, FlatMap(self._function(name, function, with_key), returns, with_key), retry)

    @overload
    def inspect(self, name: str, function: Callable[[Value], Any], *, retry: Errors = ()) -> Stream[Value]: ...
    @overload
    def inspect(self, function: Callable[[Value], Any], /, *, retry: Errors = ()) -> Stream[Value]: ...
    def inspect(
        self, name: Any = None, function: Any = None, *, retry: Errors = (), with_key: bool = False
    ) -> Stream[Value]:
        """Call the function with each value; its result is ignored.

        - `function`: called in the tasks, and again if a batch is repeated.
        - `retry`, `with_key`: as in `map`.

        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("look")
        >>> _ = job.source("in", sources.iterable([1, 2])).inspect("look", print).sink("out", sinks.collect())
        >>> _ = run_in_memory(job)
        1
        2
        """
        name, function = self._named("inspect", name, function)
        return self._same(name, Inspect(self._function(name, function, with_key), with_key), retry)

    @overload
    def map_batches(
        self, name: str, function: Callable[[pa.RecordBatch], pa.RecordBatch], *, returns: type[New], retry: Errors = ()
    ) -> Stream[New]: ...
    @overload
    def map_batches(
        self,
        name: str,
        function: Callable[[pa.RecordBatch], pa.RecordBatch],
        *,
        returns: None = None,
        retry: Errors = (),
    ) -> Stream[Row]: ...
    @overload
    def map_batches(
        self, function: Callable[[pa.RecordBatch], pa.RecordBatch], /, *, returns: type[New], retry: Errors = ()
    ) -> Stream[New]: ...
    @overload
    def map_batches(
        self,
        function: Callable[[pa.RecordBatch], pa.RecordBatch],
        /,
        *,
        returns: None = None,
        retry: Errors = (),
    ) -> Stream[Row]: ...
    def map_batches(
        self,
        name: Any = None,
        function: Any = None,
        *,
        returns: Any = None,
        retry: Errors = (),
    ) -> Stream[Any]:
        """Call the function with whole Arrow record batches, and continue with the batches that it returns.

        - `function`: called with batches of any length; its result must not depend on the length. If the stream has
          keys, it must return as many rows as it receives, in the same order.
        - `returns`: the type of one record; `Row` by default.
        - `retry`: as in `map`.

        >>> import pyarrow.compute as pc
        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> job = Job("cheap")
        >>> orders = job.source("in", sources.iterable([{"cents": 250}, {"cents": 90}]))
        >>> cheap = orders.map_batches("cheap", lambda batch: batch.filter(pc.less(batch["cents"], 100)))
        >>> _ = cheap.sink("out", sinks.collect())
        >>> run_in_memory(job).outputs["out"]
        [{'cents': 90}]
        """
        name, function = self._named("map_batches", name, function)
        return self._same(name, MapBatches(checked_function(name, function, "batch"), returns), retry)
