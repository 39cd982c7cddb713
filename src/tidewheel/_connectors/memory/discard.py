"""discard: count records and drop them."""

from __future__ import annotations

import pyarrow as pa

from tidewheel._connectors.sink import Publication, Sink, SinkPartition, Staging


def discard() -> Discard:
    """Count records and drop them: to measure a program without its output. Exactly once, trivially.

    Every checkpoint has the count, under the name of the sink.
    """
    return Discard()


class Discard(Sink):
    """Exactly once: nothing is ever visible."""

    guarantee = "exactly once"
    retracts = True

    def open(self, staging: Staging) -> SinkPartition:
        return _Nothing()

    def publish(self, publication: Publication) -> None:
        """Do nothing."""

    def retract(self, job: str, sink: str, after: int, before: int) -> str | None:
        """Do nothing: nothing was visible."""
        return None


class _Nothing(SinkPartition):
    def write(self, columns: pa.RecordBatch) -> None:
        pass

    def prepare(self) -> bytes | None:
        return None
