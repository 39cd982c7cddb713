"""Generate the input: Parquet or CSV files of (key string, value long) with uniformly drawn keys, the same on every machine."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

SCHEMA = "key string, value long"


def dataset(cache: Path, keys: int, rows: int, files: int, format: str = "parquet") -> Path:
    """Return a folder with `files` files of `rows` rows over `keys` keys. It is written once, and is complete or absent."""
    suffix = "" if format == "parquet" else f"-{format}"

    def fill(folder: Path) -> None:
        for number in range(files):
            random = np.random.default_rng([7, number])
            names = pc.cast(pa.array(random.integers(0, keys, rows)), pa.string())
            values = pa.array(random.integers(0, 100, rows), pa.int64())
            table = pa.table({"key": names, "value": values})
            path = folder / f"part-{number:05d}.{format}"
            if format == "parquet":
                pq.write_table(table, path)
            else:
                csv.write_csv(table, path, csv.WriteOptions(quoting_style="none"))

    return made_once(cache / f"keys-{keys}-rows-{rows}-files-{files}{suffix}", fill)


def made_once(folder: Path, fill: Callable[[Path], None]) -> Path:
    """Return the folder. If it does not exist, fill it under another name first, so that it is complete or absent."""
    if not folder.is_dir():
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        fill(unfinished)
        unfinished.rename(folder)
    return folder


def first(folder: Path, files: int, into: Path) -> Path:
    """Make a folder that contains the first `files` files of another one, without copying them."""
    into.mkdir(parents=True)
    for path in sorted(folder.iterdir())[:files]:
        os.link(path, into / path.name)
    return into
