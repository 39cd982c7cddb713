"""PartedTable: rows with a unique key in several parts, each of which is opened when one of its keys is looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel._values.keyed_table import Hashes, KeyedRows, KeyedTable, Rows

_ROW_BITS = 40
"""The number of a row has its place in its part in the lowest bits, and the part above them."""


def part_of_each(hashes: Hashes, parts: int) -> npt.NDArray[np.int64]:
    """Return the part of each key. The shards of keys of one column divide in the same way.

    So a task that looks up the keys of its own shards needs only the parts of these shards.
    """
    return hashes & (parts - 1)


def by_part(parts: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield each part that occurs, with its places in order."""
    # Numbers of 16 bits are sorted by their digits, in one pass.
    small = parts.astype(np.int16)
    order = np.argsort(small, kind="stable")
    ends = np.flatnonzero(np.diff(small[order])) + 1
    for places in np.split(order, ends):
        if len(places):
            yield int(parts[places[0]]), places


class PartedTable(KeyedRows):
    """Rows that are divided by the hashes of their keys."""

    def __init__(self, parts: int, open_part: Callable[[int], KeyedTable]) -> None:
        """Use a power of two of parts; `open_part` is called once for each that is needed."""
        self.parts, self._open = parts, open_part
        self.opened: dict[int, KeyedTable] = {}
        first = self._part(0)
        self.schema, self.key_types = first.schema, first.key_types

    def take(self, rows: Rows, columns: Sequence[str]) -> list[pa.Array]:
        pieces, order = [], []
        for part, places in by_part(rows >> _ROW_BITS):
            # Rows that are not there have the part -1, and are null in any part.
            within = rows[places] if part < 0 else rows[places] & ((1 << _ROW_BITS) - 1)
            pieces.append(self._part(max(part, 0)).take(within, columns))
            order.append(places)
        if not pieces:
            return self._part(0).take(rows, columns)
        back = pa.array(np.argsort(np.concatenate(order)))
        return [pa.concat_arrays(column).take(back) for column in zip(*pieces, strict=True)]

    def find_hashed(self, keys: Sequence[pa.Array], hashes: Hashes) -> Rows:
        found: Rows = np.full(len(hashes), -1, np.int64)
        for part, places in by_part(part_of_each(hashes, self.parts)):
            chosen = pa.array(places)
            rows = self._part(part).find_hashed([column.take(chosen) for column in keys], hashes[places])
            found[places] = np.where(rows < 0, -1, rows | part << _ROW_BITS)
        return found

    def _part(self, number: int) -> KeyedTable:
        if number not in self.opened:
            self.opened[number] = self._open(number)
        return self.opened[number]
