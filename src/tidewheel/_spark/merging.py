"""Large merges as Spark jobs in the background: the cluster reads and writes, not the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from tidewheel._core import pickling
from tidewheel._engine.merging import PIECES, MergeWork, merge_shards
from tidewheel._state.compaction import Merge, Merged
from tidewheel._storage import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE_BYTES: Final = 32 << 20
"""The most bytes that a merge in the driver reads; larger merges are cut into pieces of about this size."""

_RESULT = "merged binary"
_decode = msgspec.msgpack.Decoder(dict[int, Merged]).decode


def pieces_of(work: MergeWork, piece_bytes: int = HERE_BYTES) -> list[MergeWork]:
    """Cut work into pieces of about equal size, each with its own shards and its own number. Pure."""
    pieces: list[dict[int, Merge]] = [{}]
    size = 0
    for shard, merge in sorted(work.shards.items()):
        if size > piece_bytes and len(pieces) < PIECES:
            pieces.append({})
            size = 0
        pieces[-1][shard] = merge
        size += sum(run.bytes for run in merge.runs)
    return [
        msgspec.structs.replace(work, number=work.number + place, shards=shards) for place, shards in enumerate(pieces)
    ]


def merge_on(
    spark: SparkSession, store: Store, here_bytes: int = HERE_BYTES
) -> Callable[[MergeWork], dict[int, Merged]]:
    """Return the merger: the driver for small merges, otherwise tasks."""

    def merge(work: MergeWork) -> dict[int, Merged]:
        if work.bytes <= here_bytes:
            return merge_shards(store, work)
        pieces = pieces_of(work, here_bytes)
        task = _task(pickling.dumps((store.url, pieces)))
        # A row is the place of a piece: each is a task.
        rows = spark.range(0, len(pieces), 1, len(pieces)).mapInArrow(task, _RESULT).collect()
        return {shard: merged for row in rows for shard, merged in _decode(bytes(row[0])).items()}

    return merge


def _task(payload: bytes) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def merge(places: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        url, pieces = pickling.loads(payload)
        store = open_store(url)
        for rows in places:
            found = [merge_shards(store, pieces[place]) for place in rows.column(0).to_pylist()]
            results = pa.array(map(msgspec.msgpack.encode, found), pa.binary())
            yield pa.RecordBatch.from_arrays([results], names=["merged"])

    return merge
