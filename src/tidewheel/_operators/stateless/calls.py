"""Call a function for many values at once: a bounded number of calls in flight, a time limit, retries, a cache."""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Any

from tidewheel._core import event_loop
from tidewheel._core.transient import is_transient
from tidewheel.errors import StepError

_FIRST_DELAY = 0.1
_LONGEST_DELAY = 10.0
"""Seconds before the first and at most before any other repetition of a call."""

current_key: ContextVar[Callable[[], str]] = ContextVar("current_key")
"""Returns the idempotency key of the call that is being made."""


@dataclass(frozen=True)
class CallOptions:
    """How a function is called, as the user declared it."""

    concurrency: int
    timeout: float | None
    """Seconds for one call."""
    retries: int
    """How often a call that fails with a transient error is repeated."""
    batch: int | None
    """The maximum number of values in one call; None calls with single values."""
    cache: int
    """The maximum number of cached results; 0 for none."""
    ttl: float | None
    """Seconds for which a result is cached; None means until the worker ends."""


@dataclass
class CallStatistics:
    """The counts of the calls of one batch."""

    calls: int = 0
    failures: int = 0
    """Calls that raised or exceeded the time limit, including those that were repeated."""
    cached: int = 0
    """Values that needed no call."""
    seconds: float = 0.0
    """The durations of all calls together."""


@dataclass(frozen=True)
class Failed:
    """The permanent error of a value."""

    error: Exception


class Calls:
    """Make the calls of one step in this process. The cache and the opened resource last as long as the step."""

    def __init__(
        self,
        function: Callable[..., Any],
        options: CallOptions,
        retry: tuple[type[Exception], ...],
        opening: Callable[[], Any] | None,
        closing: Callable[[Any], Any] | None,
    ) -> None:
        self.options = options
        self._function, self._retry, self._opening, self._closing = function, retry, opening, closing
        self._resource: list[Any] = []
        """The opened resource; empty before."""
        self._cache: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()

    async def open(self) -> None:
        """Open the resource, unless it is open."""
        if self._opening is not None and not self._resource:
            self._resource.append(await _called(self._opening))

    def close(self) -> None:
        """Close the resource."""
        if self._resource and self._closing is not None:
            event_loop.finish(_called(self._closing, self._resource.pop()))

    def cached(self, value: Any) -> tuple[Any] | None:
        """Return the cached result of a value, a `Failed` for a value that cannot be cached, or None."""
        try:
            key = cache_key(value)
            expires, result = self._cache.get(key, (0.0, None))
        except TypeError as error:
            text = f"the cache needs values that can be hashed, and {error}. Use on= to name what identifies a look-up"
            return (Failed(StepError(text)),)
        if expires <= time.monotonic():
            return None
        self._cache.move_to_end(key)
        return (result,)

    async def results(self, values: list[Any], key: Callable[[], str], statistics: CallStatistics) -> list[Any]:
        """Return the result for each value of one call, or a `Failed`. A failing call is divided to find the value.

        A transient error that outlasts its retries is raised: it belongs to no single value. `key` returns the idempotency
        key of the first value.
        """
        try:
            result = await self._repeated(values[0] if self.options.batch is None else values, key, statistics)
            found = [result] if self.options.batch is None else self._checked(result, len(values))
        except Exception as error:
            if is_transient(error, self._retry):
                raise
            if len(values) == 1:
                return [Failed(error)]
            middle = len(values) // 2
            parts = [await self.results(part, key, statistics) for part in (values[:middle], values[middle:])]
            return parts[0] + parts[1]
        if self.options.cache:
            self._remember(values, found)
        return found

    def _checked(self, results: Any, number: int) -> list[Any]:
        if not isinstance(results, list | tuple) or len(results) != number:
            found = f"{len(results)} results" if isinstance(results, list | tuple) else type(results).__name__
            raise StepError(
                f"with batch=, the function must return a list with one result per value: {number}, not {found}"
            )
        return list(results)

    async def _repeated(self, argument: Any, key: Callable[[], str], statistics: CallStatistics) -> Any:
        for delay in (*_delays(self.options.retries), None):
            began = time.perf_counter()
            statistics.calls += 1
            try:
                async with asyncio.timeout(self.options.timeout):
                    # Set while the time limit runs: its timer keeps the values that are set before.
                    token = current_key.set(key)
                    try:
                        return await _called(self._function, argument, *self._resource)
                    finally:
                        current_key.reset(token)
            except BaseException as raised:
                error = _of_the_call(raised)
            finally:
                statistics.seconds += time.perf_counter() - began
            statistics.failures += 1
            if isinstance(error, TimeoutError) and self.options.timeout is not None and not str(error):
                error = TimeoutError(f"a call took longer than timeout= ({self.options.timeout:g} s)")
            if delay is None or not is_transient(error, self._retry):
                raise error
            await asyncio.sleep(delay)
        raise AssertionError("the last attempt returns or raises")

    def _remember(self, values: Sequence[Hashable], results: Sequence[Any]) -> None:
        expires = float("inf") if self.options.ttl is None else time.monotonic() + self.options.ttl
        for key, result in zip(map(cache_key, values), results, strict=True):
            self._cache[key] = expires, result
            self._cache.move_to_end(key)
        while len(self._cache) > self.options.cache:
            self._cache.popitem(last=False)


def cache_key(value: Any) -> Hashable:
    """Return what identifies a value in the cache: 1, 1.0 and True are equal, but a call may return something else for each."""
    return type(value), tuple(map(cache_key, value)) if isinstance(value, tuple) else value


_kept: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_calls: dict[int, Calls] = {}


def kept_calls(owner: Any, create: Callable[[], Calls]) -> Calls:
    """Return the calls of a step in this process; they are closed when the step's program or the process ends."""
    if _kept.get(id(owner)) is not owner:
        _kept[id(owner)] = owner
        _calls[id(owner)] = create()
        weakref.finalize(owner, _end, id(owner), _calls[id(owner)])
    return _calls[id(owner)]


def _end(number: int, calls: Calls) -> None:
    if _calls.get(number) is calls:
        del _calls[number]
    calls.close()


def _delays(retries: int) -> Iterator[float]:
    """Yield the pause before each repetition: twice the pause before, and random, so that callers do not return together."""
    for number in range(retries):
        yield min(_LONGEST_DELAY, _FIRST_DELAY * 2**number) * random.uniform(0.5, 1.0)


def _of_the_call(raised: BaseException) -> Exception:
    """Return the error of a call; raise it if the call was stopped from outside."""
    task = asyncio.current_task()
    if isinstance(raised, asyncio.CancelledError) and task is not None and task.cancelling():
        raise raised
    if isinstance(raised, Exception):
        return raised
    # Any other exception would end the event loop or leave the value unanswered.
    return StepError(f"the function raised {type(raised).__name__}; raise a subclass of Exception")


async def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Await a coroutine function; call a plain function in a thread."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        return await function(*arguments)
    return await _in_thread(functools.partial(copy_context().run, function, *arguments))


def _in_thread(work: Callable[[], Any]) -> asyncio.Future[Any]:
    """Start `work` in a daemon thread: a call that hangs cannot be stopped, and must not keep the process from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def set_result(result: Any, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def run() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = work()
        except StopIteration:
            # A future refuses StopIteration.
            error = StepError("the function raised StopIteration; use next(iterator, default)")
        except BaseException as raised:
            error = raised
        loop.call_soon_threadsafe(set_result, result, error)

    threading.Thread(target=run, name="tidewheel-call", daemon=True).start()
    return future
