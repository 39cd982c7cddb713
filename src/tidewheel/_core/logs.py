"""Loggers whose records name their run: `job`, `run`, `node`, `sequence` and `trace_id`.

A logger has the name of its module, so that levels can be set by package. The program configures the handlers; those of
the command line are in `tidewheel._observe.logs`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

FIELDS = ("job", "run", "node", "sequence", "trace_id")
"""The fields that are added to each record; None if unknown."""


@dataclass(frozen=True)
class RunContext:
    """A run of this process."""

    job: str
    run: str
    node: str = ""
    sequence: Callable[[], int | None] = lambda: None
    """Returns the newest commit."""
    trace_id: Callable[[], str | None] = lambda: None
    """Returns the trace of the current batch."""


_current: ContextVar[RunContext | None] = ContextVar("tidewheel_run", default=None)
_live: list[RunContext] = []
_lock = threading.Lock()


@contextmanager
def of_run(context: RunContext) -> Iterator[None]:
    """Assign this thread's log records in the block to this run."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


def begin(context: RunContext) -> None:
    """Register a run. If it is the only run in the process, all log records belong to it."""
    with _lock:
        _live.append(context)


def end(context: RunContext) -> None:
    """Unregister a run; an unknown one is ignored."""
    with _lock:
        if context in _live:
            _live.remove(context)


def fields() -> dict[str, Any]:
    """Return the fields of the caller's run."""
    context = _current.get()
    if context is None:
        with _lock:
            context = _live[0] if len(_live) == 1 else None
    if context is None:
        return dict.fromkeys(FIELDS)
    return {
        "job": context.job,
        "run": context.run,
        "node": context.node or None,
        "sequence": context.sequence(),
        "trace_id": context.trace_id(),
    }


class _RunLogger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, {**kwargs, "extra": {**(kwargs.get("extra") or {}), **fields()}}


def logger(name: str) -> logging.LoggerAdapter[logging.Logger]:
    """Return the logger of a module; call it with `__name__`."""
    return _RunLogger(logging.getLogger(name), {})
