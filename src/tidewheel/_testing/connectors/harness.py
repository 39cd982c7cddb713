"""What a connector's author tells the suite: how to make the connector, and how to look at the other side of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from tidewheel._connectors.sink import Sink
from tidewheel._connectors.source import Source, SourceReader


class Server:
    """The server behind a connector; a harness that can kill it says how, and the tests of failures then run."""

    secrets: Sequence[str] = ()
    """What must never be seen: passwords and keys that the connector was given."""

    def stop_server(self) -> None:
        """Kill the server without notice."""
        raise NotImplementedError

    def start_server(self) -> None:
        """Start it again, with what it held, and wait until it serves."""
        raise NotImplementedError

    @property
    def can_stop(self) -> bool:
        """Whether the server can be stopped and started."""
        return type(self).stop_server is not Server.stop_server


class SourceHarness(Server, ABC):
    """One place to read from, empty when a test begins."""

    exact_limit: bool = True
    """Whether a batch never has more than `max_records`; a source that ends between blocks may have more."""

    @abstractmethod
    def source(self, *, max_records: int | None = None) -> Source:
        """Return a source that reads all there is, from the oldest on; `max_records` bounds a batch."""

    @abstractmethod
    def append(self, payloads: Sequence[bytes]) -> None:
        """Add a record for each payload, in this order, so that it is durable; where there are partitions, to several."""

    def payload(self, row: dict[str, Any]) -> bytes:
        """Return the payload of a record that was read."""
        return bytes(row["value"])

    def reader(self, source: Source) -> SourceReader:
        """Return the reader that a run would open."""
        return source.open()


class SinkHarness(Server, ABC):
    """One place to write to, empty when a test begins."""

    points_not_shown: Sequence[str] = ()
    """Fault points whose effect the tests' server does not undo, though those that the sink is made for do."""

    @abstractmethod
    def sink(self) -> Sink:
        """Return a sink that writes there; called again, another one, as another process would have it."""

    @abstractmethod
    def contents(self) -> list[dict[str, Any]]:
        """Return what a reader of the place sees now, as dicts with the columns of `rows`, in any order."""

    def rows(self, numbers: Iterable[int]) -> pa.RecordBatch:
        """Return records to write, one for each number, that can be told apart by the column `id`."""
        wanted = list(numbers)
        return pa.RecordBatch.from_pydict(
            {"id": pa.array(wanted, pa.int64()), "name": pa.array([f"name-{number}" for number in wanted], pa.string())}
        )
