"""The order of keys in the store, found by sorting numbers: eight bytes of a key are one number.

Sorting numbers takes half the time of sorting text, and puts equal keys side by side: where most keys are different, that
takes less time than looking each one up in a table of those that were there before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_WORD = 8
_LONGEST = 2 * _WORD
"""Keys of more bytes are left to Arrow."""

Positions = npt.NDArray[np.int64]
Words = list[npt.NDArray[np.uint64]]


class SortedColumn(NamedTuple):
    """A column of keys in the order of their bytes in the store."""

    order: Positions
    """The positions of the keys; those of equal keys ascend."""
    starts: Positions
    """Where in `order` each distinct key begins."""
    counts: Positions
    """How often each comes."""


def sorted_column(column: pa.Array) -> SortedColumn | None:
    """Return the order of a column without nulls, of text, bytes or 64-bit integers; None where it has no fast way."""
    words = _words(column)
    if words is None or not len(column):
        return None
    order = np.argsort(words[-1], kind="stable")
    for word in reversed(words[:-1]):
        order = order[np.argsort(word[order], kind="stable")]
    differs = np.zeros(len(order), bool)
    differs[0] = True
    for word in words:
        ascending = word[order]
        differs[1:] |= ascending[1:] != ascending[:-1]
    starts = np.flatnonzero(differs)
    return SortedColumn(order, starts, np.diff(starts, append=len(order)))


def _words(column: pa.Array) -> Words | None:
    """Return the keys as numbers, the first eight bytes first, that compare as the keys' bytes in the store do."""
    if pa.types.is_int64(column.type):
        # The store has the lowest byte first.
        return [column.to_numpy().byteswap().view(np.uint64)]
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        return None
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(offsets)
    longest = int(lengths.max(initial=0))
    text = np.frombuffer(column.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    # What is behind the end of a key counts as NUL, which no key may have then.
    if longest > _LONGEST or not text.all():
        return None
    padded = np.concatenate([text, np.zeros(_LONGEST, np.uint8)])
    everywhere = np.ndarray((len(padded) - _WORD + 1,), ">u8", padded, strides=(1,))
    begins = (offsets[:-1] - offsets[0]).astype(np.intp)
    words = []
    for at in range(0, max(longest, 1), _WORD):
        left = np.clip(lengths - at, 0, _WORD)
        # A shift by all 64 bits is none to the processor.
        behind = ((_WORD - np.maximum(left, 1)) * 8).astype(np.uint64)
        word = everywhere[np.minimum(begins + at, len(everywhere) - 1)].astype(np.uint64) >> behind << behind
        words.append(np.where(left > 0, word, np.uint64(0)))
    return words
