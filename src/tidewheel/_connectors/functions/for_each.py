"""for_each: a function per record, in the driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidewheel._connectors.sink import Publication, Sink, SinkPartition, Staging
from tidewheel._connectors.staging import StagedRecords, published_batches
from tidewheel._core.text import shortened
from tidewheel._core.transient import is_transient
from tidewheel._core.user_code import described
from tidewheel._values.columns import records
from tidewheel.errors import Retry, StepError


def for_each(function: Callable[[dict[str, Any]], Any], *, retry: tuple[type[Exception], ...] = ()) -> ForEach:
    """Call the function with every record, a dict of its columns, in the driver, after the record is committed.

    At least once: after a crash, the function may be called again for all records of the last commit. Use it for effects
    that can be repeated, such as an upsert by key or a message with an id.

    Connection errors, time-outs and errors of the classes in `retry` restart the run; any other error stops the run if it
    occurs again.
    """
    return ForEach(function, retry)


class ForEach(Sink):
    """At least once: no committed record is lost, and those of the newest commit may come again."""

    guarantee = "at least once"

    def __init__(self, function: Callable[[dict[str, Any]], Any], retry: tuple[type[Exception], ...] = ()) -> None:
        """Take the function and its transient errors."""
        self.retry = retry
        self.function: Callable[[dict[str, Any]], Any] | None = function

    def open(self, staging: Staging) -> SinkPartition:
        return StagedRecords(staging)

    def publish(self, publication: Publication) -> None:
        assert self.function is not None
        for batch in published_batches(publication):
            for record in records(batch):
                try:
                    self.function(record)
                except Exception as error:
                    kind = Retry if is_transient(error, self.retry) else StepError
                    raise kind(
                        f"sink {publication.sink!r}: its function failed on the record {shortened(record)} of sequence "
                        f"{publication.sequence}: {described(error)}. The record is committed; the next start "
                        "calls the function again"
                    ) from error

    def __getstate__(self) -> dict[str, Any]:
        """Leave the function in the driver: it may hold connections, and no task calls it."""
        return {"function": None, "retry": self.retry}
