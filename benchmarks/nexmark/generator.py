"""Generate events by number: event `n` is always the same, so generation can be split and resumed anywhere.

Of every 50 events, the first is a person, the next three are auctions, and the other 46 are bids: 2, 6 and 92 %. Times ascend
with the numbers. The columns of other kinds of events are null.
"""

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

PERSON, AUCTION, BID = 0, 1, 2
CYCLE = 50
AUCTIONS = 3
START = 1_767_225_600_000_000_000
"""2026-01-01 00:00 UTC, in ns."""
GAP = 10_000_000
"""The ns between two events: 100 a second."""

SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("kind", pa.int64()),
        ("time", pa.int64()),
        ("id", pa.int64()),
        ("name", pa.string()),
        ("state", pa.string()),
        ("seller", pa.int64()),
        ("category", pa.int64()),
        ("expires", pa.int64()),
        ("auction", pa.int64()),
        ("bidder", pa.int64()),
        ("price", pa.int64()),
        ("channel", pa.string()),
    ]
)
STATES = np.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
CHANNELS = np.array(["Apple", "Baidu", "Facebook", "Google"])
CATEGORIES = 5
FIRST_CATEGORY = 10

Ints = npt.NDArray[np.int64]


def draw(numbers: Ints, salt: int) -> npt.NDArray[np.uint64]:
    """Return a pseudo-random number for each event, which depends only on the event and the salt (splitmix64)."""
    z = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt * 0xBF58476D1CE4E5B9 % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _recent(numbers: Ints, salt: int, per_cycle: int, reach: int) -> Ints:
    """Return the number of one of the last `reach` things of a kind that exist at an event; there is always one."""
    known = numbers // CYCLE * per_cycle + per_cycle
    back = (draw(numbers, salt) % np.uint64(reach)).astype(np.int64)
    chosen: Ints = np.maximum(known - 1 - back, 0)
    return chosen


def events(first: int, count: int) -> pa.Table:
    """Return the events from number `first` on."""
    numbers = np.arange(first, first + count, dtype=np.int64)
    place = numbers % CYCLE
    kinds = np.where(place == 0, PERSON, np.where(place <= AUCTIONS, AUCTION, BID))
    person, auction, bid = kinds == PERSON, kinds == AUCTION, kinds == BID
    times = START + numbers * GAP
    own = np.where(person, numbers // CYCLE, numbers // CYCLE * AUCTIONS + place - 1)

    def only(mask: npt.NDArray[np.bool_], values: object) -> pa.Array:
        return pa.array(values, mask=~mask)

    columns = [
        pa.array(numbers),
        pa.array(kinds),
        pa.array(times),
        only(person | auction, own),
        only(person, np.char.add("person ", own.astype(str))),
        only(person, STATES[(draw(numbers, 1) % np.uint64(len(STATES))).astype(np.int64)]),
        only(auction, _recent(numbers, 2, 1, 40)),
        only(auction, FIRST_CATEGORY + (draw(numbers, 3) % np.uint64(CATEGORIES)).astype(np.int64)),
        only(auction, times + (1 + draw(numbers, 4) % np.uint64(20)).astype(np.int64) * 1_000_000_000),
        only(bid, _recent(numbers, 5, AUCTIONS, 30)),
        only(bid, _recent(numbers, 6, 1, 60)),
        only(bid, 100 + (draw(numbers, 7) % np.uint64(100_000)).astype(np.int64)),
        only(bid, CHANNELS[(draw(numbers, 8) % np.uint64(len(CHANNELS))).astype(np.int64)]),
    ]
    return pa.table(columns, schema=SCHEMA)


def write(folder: Path, count: int, per_file: int) -> None:
    """Write events as Parquet files, one for each batch."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, count, per_file)):
        path = folder / f"part-{number:05d}.parquet"
        pq.write_table(events(first, min(per_file, count - first)), path)
        # Spark takes files by their times, and two that are written in a moment may have the same.
        os.utime(path, (START // 10**9 + number,) * 2)
