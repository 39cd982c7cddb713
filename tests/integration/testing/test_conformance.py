"""The conformance suite on correct connectors, and its findings on incorrect ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import dataset

from tidewheel import sinks
from tidewheel._connectors.log_source import Positions
from tidewheel._storage import open_store
from tidewheel._values.columns import records
from tidewheel.connectors import (
    Log,
    PartitionedSource,
    Publication,
    Sink,
    SinkPartition,
    StagedBatches,
    Staging,
    published_batches,
)
from tidewheel.testing.connectors import SinkConformance, SinkHarness, SourceConformance, SourceHarness

SCHEMA = pa.schema([("value", pa.binary())])


class Lines(Log):
    """Files of JSON lines, a partition each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self) -> Positions:
        return dict.fromkeys(self._lines(), 0)

    def end(self, start: Positions) -> Positions:
        return {name: len(lines) for name, lines in self._lines().items()}

    def read(self, partition: str, first: int, last: int) -> Iterator[pa.RecordBatch]:
        lines = [json.loads(line).encode() for line in self._lines()[partition][first:last]]
        yield pa.RecordBatch.from_pydict({"value": lines}, schema=SCHEMA)

    def _lines(self) -> dict[str, list[str]]:
        return {path.name: path.read_text().splitlines() for path in sorted(self.folder.glob("*"))}


class LinesHarness(SourceHarness):
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for partition in range(3):
            (folder / str(partition)).touch()

    def source(self, *, max_records=None):
        return PartitionedSource(partial(Lines, self.folder), SCHEMA, max_records)

    def append(self, payloads):
        for number, payload in enumerate(payloads):
            with (self.folder / str(number % 3)).open("a") as file:
                file.write(json.dumps(payload.decode()) + "\n")


class TestASourceOfFiles(SourceConformance):
    @pytest.fixture
    def harness(self, tmp_path):
        folder = tmp_path / "lines"
        folder.mkdir()
        return LinesHarness(folder)


class FilesHarness(SinkHarness):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def sink(self):
        return sinks.files(self.folder)

    def contents(self):
        return dataset.dataset(self.folder).to_table().to_pylist()


class TestTheFilesSink(SinkConformance):
    @pytest.fixture
    def harness(self, tmp_path):
        return FilesHarness(tmp_path / "out")


class Appending(Sink):
    """Adds to an object in memory, and forgets that it did."""

    guarantee = "at least once"

    def __init__(self, place: str) -> None:
        self.place = place

    def open(self, staging: Staging) -> SinkPartition:
        return StagedBatches(staging)

    def publish(self, publication: Publication) -> None:
        rows = [row for batch in published_batches(publication) for row in records(batch)]
        store = open_store(self.place)
        store.create(f"{len(list(store.list()))}", json.dumps(rows).encode())


class Careless(Appending):
    guarantee = "exactly once"


class AppendingHarness(SinkHarness):
    kind: type[Appending] = Appending

    def __init__(self, place: str) -> None:
        self.place = place

    def sink(self):
        return self.kind(self.place)

    def contents(self):
        store = open_store(self.place)
        return [row for entry in store.list() for row in json.loads(store.read(entry.path))]


class CarelessHarness(AppendingHarness):
    kind = Careless


class TestASinkThatPromisesLittle(SinkConformance):
    @pytest.fixture
    def harness(self, request):
        return AppendingHarness(f"memory:appending-{request.node.name}")


def test_a_sink_that_promises_too_much_is_found_out():
    with pytest.raises(AssertionError, match="more than 1 times"):
        SinkConformance().test_publishing_twice_duplicates_nothing(CarelessHarness("memory:careless"))
