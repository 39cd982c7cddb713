"""Count the rows that a chain of files and a topic loses or doubles while its reader is stopped before random commits.

A topic has numbered records. The history has the records before a random offset of each partition, in random order, and later
records in files that appear during the reading. A stopped reader continues from the position and the files of the last commit,
as the driver does.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer
from pyarrow import parquet

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from servers.kafka_server import running_kafka
from tidewheel import sources
from tidewheel._core import pickling
from tidewheel._testing.connectors.driving import recorded

PARTITIONS = 3
FILE_ROWS = 2_000


def measure(rows: int = 20_000, seed: int = 27) -> dict[str, float]:
    """Return how many rows were lost and how many were doubled."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, running_kafka(Path(folder) / "kafka") as server:
        server.create("chained", PARTITIONS)
        producer = Producer({"bootstrap.servers": server.brokers})
        for number in range(rows):
            producer.produce("chained", b"%d" % number, partition=number % PARTITIONS)
            if not number % 10_000:
                producer.flush()
        assert producer.flush(60) == 0
        found = Counter(_read(server.brokers, Path(folder) / "history", rows, chance))
    return {
        "chain_seam_rows_lost": rows - len(found),
        "chain_seam_rows_doubled": sum(found.values()) - len(found),
        "chain_rows": rows,
    }


def _read(brokers: str, history: Path, rows: int, chance: random.Random) -> list[int]:
    history.mkdir()
    ends = [chance.randrange(rows // PARTITIONS // 2, rows // PARTITIONS) for _ in range(PARTITIONS)]
    archived = [number for number in range(rows) if number // PARTITIONS < ends[number % PARTITIONS]]
    chance.shuffle(archived)
    for begin in range(0, len(archived), FILE_ROWS):
        _write(history, archived[begin : begin + FILE_ROWS])
    beyond = [number for number in range(rows) if number // PARTITIONS >= ends[number % PARTITIONS]]
    values: list[int] = []
    seen: list = []
    position, reader = None, None
    while True:
        if reader is None:
            files = sources.files(history, "parquet", max_files_per_trigger=3)
            topic = sources.kafka(brokers, "chained", max_records=5_000)
            reader = sources.chain(files, then=topic).open()
            reader.recall(seen)
        start = recorded(reader.start()) if position is None else position
        end = recorded(reader.end(start))
        splits = pickling.loads(pickling.dumps(reader.splits(start, end, 2)))
        batch = [int(value) for split in splits for each in split.read() for value in each["value"].to_pylist()]
        if chance.random() < 0.3:
            reader.close()
            reader = None
            continue
        values += batch
        seen += reader.seen(start, end)
        if position is None:
            # The seam is committed: later records of the history come from the topic.
            _write(history, beyond[:FILE_ROWS])
        if end == start:
            reader.close()
            return values
        reader.committed(end)
        position = end


def _write(folder: Path, numbers: list[int]) -> None:
    table = pa.table(
        {
            "value": pa.array([b"%d" % number for number in numbers], pa.binary()),
            "partition": pa.array([number % PARTITIONS for number in numbers], pa.int32()),
            "offset": pa.array([number // PARTITIONS for number in numbers], pa.int64()),
        }
    )
    parquet.write_table(table, folder / f"{len(list(folder.iterdir())):06}.parquet")


if __name__ == "__main__":
    import json

    print(json.dumps(measure()))
