"""An operator's state as Arrow and as a Parquet file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from tidewheel.checkpoint.columns import SAMPLE, Columns
from tidewheel.checkpoint.manifest import OperatorInfo
from tidewheel.checkpoint.read import StateReader
from tidewheel.errors import StorageError
from tidewheel.keys import from_stored
from tidewheel.state.codec import Codec, msgpack_codec


def columns_of(reader: StateReader, operator: str, declared: Any = None) -> Columns:
    """Decide the columns of an operator's state: by the declared type, or by a sample of its fullest shards."""
    parts = reader.manifest.shards
    fullest = sorted(parts, key=lambda shard: -sum(p.keys for p in (parts[shard].snapshot, *parts[shard].deltas) if p))
    decode = _codec(reader, operator, declared).decode
    keys: list[Any] = []
    values: list[Any] = []
    for shard in fullest[:4]:
        for stored, raw in islice(reader.shard(operator, shard).items(), SAMPLE // 4):
            keys.append(from_stored(stored))
            values.append(decode(raw))
    return Columns(declared, _packed_names(reader.info(operator)), keys, values)


def batches(
    reader: StateReader, operator: str, columns: Columns, shards: Iterable[int], declared: Any = None
) -> Iterator[pa.RecordBatch]:
    """Yield an operator's state of some shards, a record batch for each shard that has any."""
    decode = _codec(reader, operator, declared).decode
    for shard in shards:
        held = reader.shard(operator, shard)
        if held:
            yield columns.batch(_keys(list(held)), list(map(decode, held.values())))


def export(reader: StateReader, operator: str, path: str | os.PathLike[str], declared: Any = None) -> int:
    """Write an operator's state to one Parquet file; return the number of keys."""
    from pyarrow import parquet

    columns = columns_of(reader, operator, declared)
    rows = 0
    try:
        with parquet.ParquetWriter(os.fspath(path), columns.schema, compression="zstd") as writer:
            for batch in batches(reader, operator, columns, sorted(reader.manifest.shards), declared):
                writer.write_batch(batch)
                rows += batch.num_rows
    except OSError as error:
        raise StorageError(f"could not write {os.fspath(path)}: {error.strerror or error}") from error
    return rows


def _codec(reader: StateReader, operator: str, declared: Any) -> Codec:
    # Asked for in any case: it refuses codecs that run code, and operators that are not there.
    named = reader.codec(operator)
    return named if declared is None else msgpack_codec(declared)


def _keys(stored: list[bytes]) -> list[Any]:
    """Return the keys; text, which most are, all at once: it takes a third of the time."""
    if all(key.startswith(b"s") for key in stored):
        return [str(key[1:], "utf-8") for key in stored]
    return list(map(from_stored, stored))


def _packed_names(info: OperatorInfo) -> list[str]:
    """Return names for the numbers that an aggregate keeps: `sum:amount` is `sum_amount`, `rows:` is `rows`."""
    if info.kind != "aggregate":
        return []
    return [name.strip().strip(":").replace(":", "_") for name in info.fingerprint.split(",")]
