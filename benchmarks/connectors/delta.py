"""Measure rows a second into a Delta table: the sink, with staging and transactions, compared with `write_deltalake`."""

from __future__ import annotations

import tempfile

import pyarrow as pa
from benchmarks.connectors.sinks import batches, compared, through
from deltalake import DeltaTable, write_deltalake

from tidewheel import sinks


def measure(size: int) -> dict[str, float]:
    """Return the ratio `delta_write` and its two speeds, in rows a second."""
    # A table takes a million rows a second: with fewer rows, its creation would dominate.
    size = max(size, 1_000_000)
    rows = batches(size)
    with tempfile.TemporaryDirectory() as folder:

        def plain(number: int) -> None:
            for batch in rows:
                write_deltalake(f"{folder}/plain-{number}", pa.Table.from_batches([batch]), mode="append")

        def ours(number: int) -> None:
            through(sinks.delta(f"{folder}/ours-{number}"), rows, f"{folder}/state-{number}")
            assert DeltaTable(f"{folder}/ours-{number}").to_pyarrow_table().num_rows == size

        return compared("delta_write", size, plain, ours)


if __name__ == "__main__":
    print(measure(200_000))
