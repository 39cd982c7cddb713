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
from tidewheel.errors import OperatorError, Retry


def for_each(function: Callable[[dict[str, Any]], Any], *, retry: tuple[type[Exception], ...] = ()) -> Sink:
    """Call the function with every record, a dict of its columns, in the driver, after the record is committed.

    At least once: a crash after the first call of a batch and before the next commit calls it again for that whole
    batch. An effect that can be repeated (an upsert by key, a message with an id) makes it effectively once.

    A connection error or a time-out of the function is a restart, and so are errors of the classes `retry`; any other error
    stops the run if it comes again.
    """
    return ForEach(function, retry)


class ForEach(Sink):
    """At least once: committed records are never left out, and those of the newest commit may come again."""

    guarantee = "at least once"

    def __init__(self, function: Callable[[dict[str, Any]], Any], retry: tuple[type[Exception], ...] = ()) -> None:
        """Take the function, and its errors that are transient."""
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
                    kind = Retry if is_transient(error, self.retry) else OperatorError
                    raise kind(
                        f"sink {publication.sink!r}: its function failed on the record {shortened(record)} of sequence "
                        f"{publication.sequence}: {described(error)}. The record is committed, and the next start "
                        "calls the function again"
                    ) from error

    def __getstate__(self) -> dict[str, Any]:
        """Leave the function in the driver: it may hold connections, and no task calls it."""
        return {"function": None, "retry": self.retry}
