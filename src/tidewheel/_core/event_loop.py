"""Run coroutines from synchronous code, in one event loop per process that stays alive between batches."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_finishing: set[asyncio.Task[object]] = set()
"""Tasks without a waiter, kept here because the loop has only weak references to them."""
_lock = threading.Lock()
_loop: tuple[int, asyncio.AbstractEventLoop] | None = None
"""The process in which the loop runs, and the loop: a forked child has no thread that runs its parent's loop."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the process's event loop and return its result. Interrupting the wait cancels the coroutine."""
    future = asyncio.run_coroutine_threadsafe(coroutine, _started())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def finish(coroutine: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine of a finalizer. Python may call one in the loop's own thread, which cannot wait for itself."""
    loop = _started()
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is loop:
        _finishing.add(task := loop.create_task(coroutine))
        task.add_done_callback(_finishing.discard)
    else:
        run(coroutine)


def _started() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None or _loop[0] != os.getpid():
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="tidewheel-calls", daemon=True).start()
            _loop = os.getpid(), loop
        return _loop[1]
