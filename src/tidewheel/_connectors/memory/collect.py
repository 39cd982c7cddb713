"""collect: add records to a list of this process."""

from __future__ import annotations

from typing import Any

from tidewheel._connectors.sink import Publication, Sink, SinkPartition, Staging
from tidewheel._connectors.staging import StagedRecords, published_batches
from tidewheel._values.columns import records


def collect(into: list[dict[str, Any]] | None = None) -> Collect:
    """Add each record, as a dict of its columns, to a list: the given one, or the sink's own `records`.

    Exactly once within one process. A run in a new process starts with the output of the newest commit, because the lists
    of earlier processes are lost.

    >>> collect().records
    []
    """
    return Collect([] if into is None else into)


class Collect(Sink):
    """Exactly once within one process: a repeated publication adds nothing."""

    guarantee = "exactly once"

    def __init__(self, into: list[dict[str, Any]]) -> None:
        """Take the list."""
        self.records = into
        self._added: set[bytes] = set()

    def open(self, staging: Staging) -> SinkPartition:
        return StagedRecords(staging)

    def publish(self, publication: Publication) -> None:
        """Add the rows of each task whose rows were not added before."""
        # A token is unique to an attempt of a run, so it detects repeats even if sequences start again.
        fresh = [token for token in publication.tokens if token not in self._added]
        for batch in published_batches(publication, fresh):
            self.records.extend(records(batch))
        self._added.update(fresh)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the list in the driver."""
        return {"records": [], "_added": set()}
