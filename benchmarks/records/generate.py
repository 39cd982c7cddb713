"""The input: Parquet files of flights, nine columns, one of them a time with a zone; the same on every machine."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from benchmarks.state.generate import made_once

SCHEMA = (
    "carrier string, number int, tail string, origin string, destination string, departed timestamp, "
    "delay int, distance int, cancelled boolean"
)
_START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
_MONTH = 30 * 86_400 * 1_000_000


def dataset(cache: Path, keys: int, rows: int, files: int) -> Path:
    """Return a folder with `files` files of `rows` flights by `keys` aircraft. It is written once, and is complete or absent."""

    def fill(folder: Path) -> None:
        for number in range(files):
            flights = _flights(np.random.default_rng([11, number]), keys, rows)
            pq.write_table(flights, folder / f"part-{number:05d}.parquet")

    return made_once(cache / f"flights-{keys}-rows-{rows}-files-{files}", fill)


def _flights(random: np.random.Generator, keys: int, rows: int) -> pa.Table:
    def named(prefix: str, distinct: int) -> pa.Array:
        return pc.binary_join_element_wise(
            prefix, pc.cast(pa.array(random.integers(0, distinct, rows)), pa.string()), ""
        )

    # Seconds, out of order by up to a month, as files of a month's flights are.
    departed = _START + random.integers(0, _MONTH // 1_000_000, rows) * 1_000_000
    return pa.table(
        {
            "carrier": named("C", 14),
            "number": pa.array(random.integers(1, 6_000, rows), pa.int32()),
            "tail": named("N", keys),
            "origin": named("A", 350),
            "destination": named("A", 350),
            "departed": pa.array(departed, pa.timestamp("us", tz="UTC")),
            "delay": pa.array(random.integers(-30, 240, rows), pa.int32()),
            "distance": pa.array(random.integers(50, 5_000, rows), pa.int32()),
            "cancelled": pa.array(random.random(rows) < 0.02),
        }
    )
