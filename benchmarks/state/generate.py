"""The input: Parquet files of (key string, value long), keys drawn evenly, the same on every machine."""

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SCHEMA = "key string, value long"


def dataset(cache: Path, keys: int, rows: int, files: int) -> Path:
    """A folder with `files` files of `rows` rows over `keys` keys; made once, complete or absent."""
    folder = cache / f"keys-{keys}-rows-{rows}-files-{files}"
    if folder.is_dir():
        return folder
    unfinished = folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for number in range(files):
        random = np.random.default_rng([7, number])
        names = pc.cast(pa.array(random.integers(0, keys, rows)), pa.string())
        values = pa.array(random.integers(0, 100, rows), pa.int64())
        table = pa.table({"key": names, "value": values})
        pq.write_table(table, unfinished / f"part-{number:05d}.parquet")
    unfinished.rename(folder)
    return folder


def first(folder: Path, files: int, into: Path) -> Path:
    """A folder that holds the first `files` files of another, without copying them."""
    into.mkdir(parents=True)
    for path in sorted(folder.glob("*.parquet"))[:files]:
        os.link(path, into / path.name)
    return into
