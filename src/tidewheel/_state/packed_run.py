"""PackedRun: sorted keys with rows of one width, in the form in which a state file has them. No Python object per key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_BIN8 = 0xC4
_LONGEST = 255
"""The longest bytes whose length msgpack writes as one byte."""


class PackedRun(Sequence[tuple[bytes, bytes | None]]):
    r"""Pairs of stored key and row, ascending by key.

    >>> run = PackedRun.of(pa.array([b"sa", b"sb"]), np.array([b"11", b"22"], "V2"))
    >>> list(run[1:]), len(run), run.msgpack()
    ([(b'sb', b'22')], 2, b'\x93\x92\xc4\x02sa\xc4\x02sb\x92\xc4\x0211\xc4\x0222\x90')
    """

    __slots__ = ("_encoded_keys", "_encoded_rows", "keys")

    def __init__(self, keys: pa.Array, encoded_keys: pa.Array, encoded_rows: npt.NDArray[np.void]) -> None:
        """Use keys, and keys and rows as msgpack has them; `of` creates a run from plain ones."""
        self.keys, self._encoded_keys, self._encoded_rows = keys, encoded_keys, encoded_rows

    @classmethod
    def of(cls, keys: pa.Array, rows: npt.NDArray[np.void]) -> PackedRun | None:
        """Return the run of these keys and rows; None if one is too long."""
        width = rows.dtype.itemsize
        lengths = pc.binary_length(keys).to_numpy(zero_copy_only=False)
        if width > _LONGEST or lengths.max(initial=0) > _LONGEST:
            return None
        encoded = np.empty(len(rows), [("head", "V2"), ("row", f"V{width}")])
        encoded["head"], encoded["row"] = np.void(bytes((_BIN8, width))), rows
        heads = np.empty((len(keys), 2), np.uint8)
        heads[:, 0], heads[:, 1] = _BIN8, lengths
        column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(2), len(keys), [None, pa.py_buffer(heads)])
        return cls(keys, pc.binary_join_element_wise(column.cast(pa.binary()), keys, b""), encoded)

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, at: int) -> tuple[bytes, bytes | None]: ...
    @overload
    def __getitem__(self, at: slice) -> PackedRun: ...
    def __getitem__(self, at: int | slice) -> tuple[bytes, bytes | None] | PackedRun:
        if isinstance(at, int):
            return self.keys[at].as_py(), self._encoded_rows["row"][at].tobytes()
        start, stop, step = at.indices(len(self))
        assert step == 1, "only neighbours are sliced"
        length = max(0, stop - start)
        return PackedRun(
            self.keys.slice(start, length), self._encoded_keys.slice(start, length), self._encoded_rows[start:stop]
        )

    def __iter__(self) -> Iterator[tuple[bytes, bytes | None]]:
        return zip(self.keys.to_pylist(), self._encoded_rows["row"].tolist(), strict=True)

    def where(self, mask: npt.NDArray[np.bool_]) -> PackedRun:
        """Return the pairs for which the mask is true."""
        chosen = pa.array(mask)
        return PackedRun(self.keys.filter(chosen), self._encoded_keys.filter(chosen), self._encoded_rows[mask])

    @property
    def ascends(self) -> bool:
        """Whether the keys strictly ascend."""
        return len(self) < 2 or bool(pc.all(pc.less(self.keys[:-1], self.keys[1:])).as_py())

    @property
    def nbytes(self) -> int:
        """The bytes of all keys and rows as msgpack."""
        first, last = self._range
        return last - first + int(self._encoded_rows.nbytes)

    @property
    def _range(self) -> tuple[int, int]:
        """The begin and end of each encoded key in their buffer."""
        keys = self._encoded_keys
        if not len(keys):
            return 0, 0
        offsets = np.frombuffer(keys.buffers()[1], np.int32)
        return int(offsets[keys.offset]), int(offsets[keys.offset + len(keys)])

    def msgpack(self) -> bytes:
        """Return the msgpack encoding of the keys, their rows, and an empty list of deleted keys."""
        head, (first, last) = _array_head(len(self)), self._range
        data = memoryview(self._encoded_keys.buffers()[2] or b"")[first:last]
        return b"".join((b"\x93", head, data, head, self._encoded_rows.tobytes(), b"\x90"))


def _array_head(count: int) -> bytes:
    if count < 16:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdd" + count.to_bytes(4, "big")
