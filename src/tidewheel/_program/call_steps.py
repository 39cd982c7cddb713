"""CallSteps: steps that call a service or a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, overload

from tidewheel._operators.field_getter import FieldGetter
from tidewheel._operators.stateless.calls import CallOptions
from tidewheel._operators.stateless.map_async import MapAsync
from tidewheel._program.arguments import Errors, checked_errors, checked_function
from tidewheel._program.steps import Steps
from tidewheel._time.duration import Duration, nanoseconds
from tidewheel._values.type_variables import Value
from tidewheel.errors import GraphError

if TYPE_CHECKING:
    from tidewheel._program.stream import Stream

New = TypeVar("New")


class CallArguments(TypedDict, total=False):
    """How a step calls its function; `map_async` documents the arguments."""

    on: str | Callable[[Any], Any] | None
    concurrency: int
    timeout: Duration | None
    retries: int
    retry: Errors
    cache: int
    ttl: Duration | None
    open: Callable[[], Any] | None
    close: Callable[[Any], Any] | None
    ordered: bool


class CallSteps(Steps[Value]):
    """Steps that wait for calls."""

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
    ) -> Stream[New]: ...
    @overload
    def map_async(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        combine: Callable[[Value, Any], New],
        batch: int | None = None,
        **options: Unpack[CallArguments],
    ) -> Stream[New]: ...
    @overload
    def map_async(
        self,
        name: str,
        function: Callable[..., Awaitable[Sequence[New]]] | Callable[..., Sequence[New]],
        *,
        batch: int,
        **options: Unpack[CallArguments],
    ) -> Stream[New]: ...
    @overload
    def map_async(
        self, name: str, function: Callable[..., Awaitable[New]], **options: Unpack[CallArguments]
    ) -> Stream[New]: ...
    @overload
    def map_async(self, name: str, function: Callable[..., New], **options: Unpack[CallArguments]) -> Stream[New]: ...
    def map_async(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        on: str | Callable[[Value], Any] | None = None,
        combine: Callable[[Value, Any], Any] | None = None,
        returns: Any = None,
        concurrency: int = 100,
        timeout: Duration | None = "30 s",
        retries: int = 3,
        retry: Errors = (),
        batch: int | None = None,
        cache: int = 0,
        ttl: Duration | None = None,
        open: Callable[[], Any] | None = None,
        close: Callable[[Any], Any] | None = None,
        ordered: bool = True,
    ) -> Stream[Any]:
        """Replace each value by the result of a slow call, such as a request to a service, with many calls at once.

        Results keep the order of the values. A call that fails with a transient error (see `map`) is repeated; if it
        keeps failing, the batch runs again after a pause, and no record goes to the dead letters. Any other error
        belongs to the record. A batch that runs again calls again: pass `tidewheel.idempotency_key()` to a service
        that ignores repeated requests.

        - `name`: required, because the metrics count calls by name, and idempotency keys contain the name.
        - `function`: a coroutine function, or a plain function, which runs in a thread.
        - `on`: call the function with this column, or with the result of this function, instead of the whole value.
        - `combine`: called with the value and the result; returns the new value. Without it, the result is the value.
        - `returns`: the type of the new values, if the function is not annotated.
        - `concurrency`: the maximum number of calls at the same time, in each task.
        - `timeout`: the time limit of a call; it then counts as failed with a transient error. None: no limit. A plain
          function that hangs keeps its thread.
        - `retries`: how often a call is repeated, after a growing, random pause.
        - `retry`: exception classes that are transient, as in `map`.
        - `batch`: call the function with a list of up to this many values; it returns a list of as many results.
        - `cache`: the number of results that each worker process caches, by what the function is called with. Several
          records of one batch share a call.
        - `ttl`: how long a result is cached; None: as long as the worker runs.
        - `open`, `close`: `open()` runs once per worker process, before the first call, and the function is called with
          its result as second argument: a session, or a model. `close` is called with it when the worker ends.
        - `ordered`: False passes results on as calls end, so that one slow call does not hold up the others. Records of one
          key keep their order in any case; records without keys then have none.

        >>> import asyncio
        >>> from tidewheel import Job, sinks, sources
        >>> from tidewheel.testing import run_in_memory
        >>> async def country(city: str) -> str:
        ...     await asyncio.sleep(0.001)  # a request
        ...     return {"Rome": "Italy"}.get(city, "unknown")
        >>> job = Job("places")
        >>> orders = job.source("in", sources.iterable([{"id": 1, "city": "Rome"}, {"id": 2, "city": "Oslo"}]))
        >>> placed = orders.map_async("country", country, on="city", cache=1000,
        ...     combine=lambda order, country: {"id": order.id, "country": country})
        >>> _ = placed.sink("out", sinks.collect())
        >>> run_in_memory(job).outputs["out"]
        [{'id': 1, 'country': 'Italy'}, {'id': 2, 'country': 'unknown'}]
        """
        if isinstance(function, str):
            raise GraphError(
                f"step {name!r}: map_async takes a function; on={function!r} names the column to call it with"
            )
        checked_function(name, function, "values" if batch else "value", *(("resource",) if open else ()))
        if combine is not None:
            checked_function(name, combine, "value", "result")
        for option, number, least in (
            ("concurrency", concurrency, 1),
            ("retries", retries, 0),
            ("batch", 1 if batch is None else batch, 1),
            ("cache", cache, 0),
        ):
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise GraphError(f"step {name!r}: {option}= must be a number from {least} on, not {number!r}")
        if close is not None and open is None:
            raise GraphError(f"step {name!r}: close= needs open=, whose result it is called with")
        if ttl is not None and not cache:
            raise GraphError(
                f"step {name!r}: ttl= is the time that a result is cached, and needs cache=, such as cache=10_000"
            )
        options = CallOptions(
            concurrency, _seconds(name, "timeout", timeout), retries, batch, cache, _seconds(name, "ttl", ttl)
        )
        part = FieldGetter(on) if isinstance(on, str) else on
        operator = MapAsync(
            function, options, returns, part, combine, open, close, checked_errors(name, retry), ordered
        )
        return self._same(name, operator, retry)


def _seconds(name: str, option: str, duration: Duration | None) -> float | None:
    return None if duration is None else nanoseconds(duration, f"step {name!r}: {option}=", 1) / 1e9
