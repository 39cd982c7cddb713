"""Process a whole batch; if it fails, find the record at fault, reject it, and continue with the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from tidewheel._core.user_code import summary
from tidewheel._operators.base import Context
from tidewheel._values import Batch
from tidewheel.errors import (
    CorruptError,
    FencedError,
    HeldError,
    LocalDiskFull,
    StateError,
    StepError,
    StorageError,
)

T = TypeVar("T")

OF_THE_RUN = (StateError, StorageError, CorruptError, LocalDiskFull, FencedError, HeldError, MemoryError)
"""Errors for which no record is at fault."""


def accepted(
    context: Context, batch: Batch, attempt: Callable[[Batch], T], of_the_run: tuple[type[Exception], ...] = OF_THE_RUN
) -> Iterator[tuple[Batch, T]]:
    """Yield the messages for which `attempt` succeeds, in order and in as few parts as possible, each with its result.

    If an attempt fails, each half is tried again, down to a single record, which is rejected. So an attempt that fails must
    have no side effects. If both halves succeed and the whole does not, a `StepError` is raised unless there is a
    dead-letter sink. Errors in `of_the_run` end the batch instead.
    """
    return accepted_places(context, batch, lambda part, _: attempt(part), of_the_run)


def accepted_places(
    context: Context,
    batch: Batch,
    attempt: Callable[[Batch, slice], T],
    of_the_run: tuple[type[Exception], ...] = OF_THE_RUN,
) -> Iterator[tuple[Batch, T]]:
    """Like `accepted`, but also pass to the attempt the position of its part in the batch."""
    failed: Exception | None = None
    waiting = [slice(0, len(batch))] if len(batch) else []
    while waiting:
        place = waiting.pop()
        begin, end = place.start, place.stop
        part = batch if end - begin == len(batch) else batch.take(list(range(begin, end)))
        try:
            result = attempt(part, place)
        except of_the_run:
            raise
        except Exception as error:
            context.check_transient(error)
            if end - begin == 1:
                context.reject(error, part, 0)
                continue
            middle = (begin + end) // 2
            waiting += [slice(middle, end), slice(begin, middle)]
            failed = failed or error
        else:
            if failed is None or context.keeps_rejected():
                yield part, result
    if failed is not None and not context.keeps_rejected():
        # Both halves succeeded, so the records are incompatible with each other and no single one is at fault.
        raise StepError(f"step {context.operator!r}: {summary(failed)}") from failed
