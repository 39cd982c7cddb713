"""Flights of a month, as files of one batch each."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = (
    "aircraft string, carrier string, number long, origin string, destination string, departed timestamp, "
    "delay long, distance long, minutes long"
)
BATCH = 28_000
_AIRCRAFT, _CARRIERS, _AIRPORTS = 5_000, 14, 320
_DAYS, _DAY_S = 30, 86_400
_MONTH = 1_672_531_200
"""When the month begins, in seconds since 1970."""


def write(folder: Path, batches: int) -> None:
    """Write this number of files. An aircraft flies by day, and its flights are spread over all files."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(17)
    for number in range(batches):
        file = folder / f"{number:04d}.parquet"
        pq.write_table(_flights(random), file)
        # Spark takes files by the time of their last change.
        os.utime(file, (_MONTH + number, _MONTH + number))


def _flights(random: np.random.Generator) -> pa.Table:
    aircraft = random.integers(0, _AIRCRAFT, BATCH)
    departed = _MONTH + random.integers(0, _DAYS, BATCH) * _DAY_S + random.integers(6 * 3600, 23 * 3600, BATCH)
    airports = np.array([f"A{number:03d}" for number in range(_AIRPORTS)])
    return pa.table(
        {
            "aircraft": pa.array(np.char.add("N", (10_000 + aircraft).astype(str))),
            "carrier": pa.array(np.char.add("C", (aircraft % _CARRIERS).astype(str))),
            "number": random.integers(1, 9_000, BATCH),
            "origin": pa.array(airports[random.integers(0, _AIRPORTS, BATCH)]),
            "destination": pa.array(airports[random.integers(0, _AIRPORTS, BATCH)]),
            "departed": pa.array(departed * 1_000_000, pa.timestamp("us", "UTC")),
            "delay": random.integers(-20, 180, BATCH),
            "distance": random.integers(100, 3_000, BATCH),
            "minutes": random.integers(30, 400, BATCH),
        }
    )
