"""The common part of cells and maps: they change, go online and offline, are waited for, and get closed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from tidewheel._cells.errors import Closed
from tidewheel._time.duration import Duration, seconds_or_none

R = TypeVar("R")


class Observed:
    """An object that threads and coroutines can wait for. Its state changes only while `_condition` is held."""

    __slots__ = ("__weakref__", "_callbacks", "_changes", "_closed", "_condition", "_online", "where")

    def __init__(self, where: str, online: bool) -> None:
        self.where = where
        self._condition = threading.Condition(threading.RLock())
        self._callbacks: set[Callable[[], None]] = set()
        self._changes = 0
        self._closed = False
        self._online = online

    @property
    def is_online(self) -> bool:
        """Whether the backend answers, as far as this process knows. Offline, reads return the last seen value."""
        return self._online

    @property
    def is_closed(self) -> bool:
        """Whether the object was closed."""
        return self._closed

    def _set_online(self, online: bool) -> None:
        with self._condition:
            if self._online != online:
                self._online = online
                self._notify()

    def _notify(self) -> None:
        """Wake all waiting threads and coroutines. The caller holds the condition."""
        self._condition.notify_all()
        for callback in tuple(self._callbacks):
            callback()

    def _mark_closed(self) -> None:
        with self._condition:
            self._closed = True
            self._notify()

    def _check(self, ready: Callable[[], R | None]) -> R | None:
        if self._closed:
            raise Closed(f"{self.where} was closed")
        return ready()

    def _wait(self, ready: Callable[[], R | None], timeout: Duration | None, what: str) -> R:
        """Wait for and return the first result of `ready` that is not None."""
        limit = seconds_or_none(timeout, "the timeout")
        with self._condition:
            answer = self._condition.wait_for(lambda: self._check(ready), limit)
            if answer is None:
                raise TimeoutError(f"{self.where} {what} within {timeout}")
            return answer

    async def _wait_async(self, ready: Callable[[], R | None], timeout: Duration | None, what: str) -> R:
        """Wait like `_wait`, without a thread of its own."""
        limit = seconds_or_none(timeout, "the timeout")
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # The loop was closed: nobody waits any more.
                loop.call_soon_threadsafe(woken.set)

        with self._condition:
            self._callbacks.add(wake)
        try:
            async with asyncio.timeout(limit):
                while True:
                    with self._condition:
                        woken.clear()
                        answer = self._check(ready)
                    if answer is not None:
                        return answer
                    await woken.wait()
        except TimeoutError:
            raise TimeoutError(f"{self.where} {what} within {timeout}") from None
        finally:
            with self._condition:
                self._callbacks.discard(wake)
