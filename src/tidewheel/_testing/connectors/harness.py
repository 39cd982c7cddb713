"""The interface between a connector and the suite: create the connector, and inspect its server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from tidewheel._connectors.sink import Sink
from tidewheel._connectors.source import Source, SourceReader


class Server:
    """The server of a connector. If the harness can stop and start it, the suite runs the tests of failures too."""

    secrets: Sequence[str] = ()
    """The passwords and keys of the connector, which must never be visible."""

    def stop_server(self) -> None:
        """Kill the server without notice."""
        raise NotImplementedError

    def start_server(self) -> None:
        """Start it again with its data, and wait until it is ready."""
        raise NotImplementedError

    @property
    def can_stop(self) -> bool:
        """Whether the server can be stopped and started."""
        return type(self).stop_server is not Server.stop_server


class SourceHarness(Server, ABC):
    """A place to read from, empty at the start of a test."""

    exact_limit: bool = True
    """Whether a batch never has more than `max_records`; a source that ends between blocks may have more."""

    @abstractmethod
    def source(self, *, max_records: int | None = None) -> Source:
        """Return a source that reads everything from the oldest record on; `max_records` limits a batch."""

    @abstractmethod
    def append(self, payloads: Sequence[bytes]) -> None:
        """Append a durable record for each payload, in order; if there are partitions, use several."""

    def payload(self, row: dict[str, Any]) -> bytes:
        """Return the payload of a record."""
        return bytes(row["value"])

    def reader(self, source: Source) -> SourceReader:
        """Return the reader that a run would open."""
        return source.open()


class SinkHarness(Server, ABC):
    """A place to write to, empty at the start of a test."""

    points_not_shown: Sequence[str] = ()
    """Fault points after which the server of the tests does not roll back, although supported servers do."""

    @abstractmethod
    def sink(self) -> Sink:
        """Return a new sink that writes there. Each call returns another sink, like in another process."""

    @abstractmethod
    def contents(self) -> list[dict[str, Any]]:
        """Return the visible records, as dicts with the columns of `rows`, in any order."""

    def rows(self, numbers: Iterable[int]) -> pa.RecordBatch:
        """Return records to write, one for each number, with different values in the column `id`."""
        wanted = list(numbers)
        return pa.RecordBatch.from_pydict(
            {"id": pa.array(wanted, pa.int64()), "name": pa.array([f"name-{number}" for number in wanted], pa.string())}
        )
