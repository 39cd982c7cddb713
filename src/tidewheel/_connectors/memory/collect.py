"""collect: records in a list of this process."""

from __future__ import annotations

from typing import Any

from tidewheel._connectors.sink import Publication, Sink, SinkPartition, Staging
from tidewheel._connectors.staging import StagedRecords, published_batches
from tidewheel._values.columns import records


def collect(into: list[dict[str, Any]] | None = None) -> Collect:
    """Add every record, as a dict of its columns, to a list: the one given, or the sink's own `records`.

    Exactly once within one process; a list does not outlive it. A run in a new process begins with the output of
    the newest commit, since it cannot know whether that was seen.

    >>> collect().records
    []
    """
    return Collect([] if into is None else into)


class Collect(Sink):
    """Exactly once within one process: what is published twice is added once."""

    guarantee = "exactly once"

    def __init__(self, into: list[dict[str, Any]]) -> None:
        """Take the list."""
        self.records = into
        self._added: set[bytes] = set()

    def open(self, staging: Staging) -> SinkPartition:
        return StagedRecords(staging)

    def publish(self, publication: Publication) -> None:
        """Add the rows of each task whose rows were not added before."""
        # A token names a file that no other attempt of any run has, so it tells repeats also where numbers start anew.
        fresh = [token for token in publication.tokens if token not in self._added]
        for batch in published_batches(publication, fresh):
            self.records.extend(records(batch))
        self._added.update(fresh)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the list in the driver."""
        return {"records": [], "_added": set()}
