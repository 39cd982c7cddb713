"""The seed's own layout: an exchange format for checkpoints whose offsets are plain numbers.

    8 bytes  sequence, 8 bytes watermark_ns, 8 bytes event_count  (all numbers are unsigned, little-endian)
    4 bytes  number of steps; each: 4 bytes length, name (UTF-8), 4 bytes length, state
    4 bytes  number of sources;   each: 4 bytes length, name (UTF-8), 8 bytes offset

The seed's watermark is the manifest's epoch. The layout has no checksum, no stream and no time of creation, so the
reader has to supply the stream. Names are in ascending order; the seed writes them in any order.
"""

from __future__ import annotations

import struct
from typing import NoReturn

from tidewheel._checkpoint.manifest import CheckpointId, Manifest, Position
from tidewheel.errors import CorruptError, StateError

_HEADER = struct.Struct("<QQQ")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_HELD = {"id", "epoch", "event_count", "operator_states", "source_offsets"}


def to_seed(state: Manifest) -> bytes:
    """Encode the checkpoint in the seed's layout; raise `StateError`, which names every unsupported field."""
    if lost := _not_held(state):
        raise StateError(
            f"checkpoint {state.sequence} of {state.id.stream_id!r} does not fit the seed's layout: " + "; ".join(lost)
        )
    parts = [_HEADER.pack(state.sequence, state.epoch, state.event_count)]
    parts.append(_U32.pack(len(state.operator_states)))
    for name, blob in sorted(state.operator_states.items()):
        parts += [_sized(name.encode()), _sized(blob)]
    parts.append(_U32.pack(len(state.source_offsets)))
    for name, offset in sorted(state.source_offsets.items()):
        parts += [_sized(name.encode()), _U64.pack(offset)]
    return b"".join(parts)


def from_seed(stream_id: str, data: bytes, created_at: int = 0) -> Manifest:
    """Decode a checkpoint of `stream_id` from these bytes; raise `CorruptError` if it is incomplete."""
    reader = _Reader(data)
    sequence, epoch, event_count = (reader.number(_U64, what) for what in ("sequence", "watermark", "event count"))
    if sequence >= 2**63:
        reader.refuse(f"the sequence {sequence} is above 2**63 - 1", at=0)
    operators: dict[str, bytes] = {}
    for _ in range(reader.count("steps", smallest=8)):
        name = reader.name("step", operators)
        operators[name] = reader.blob(f"the state of step {name!r}")
    sources: dict[str, Position] = {}
    for _ in range(reader.count("sources", smallest=12)):
        name = reader.name("source", sources)
        sources[name] = reader.number(_U64, f"the offset of source {name!r}")
    reader.end()
    return Manifest(
        CheckpointId(stream_id, sequence, created_at),
        epoch=epoch,
        event_count=event_count,
        operator_states=operators,
        source_offsets=sources,
    )


def _not_held(state: Manifest) -> list[str]:
    plain = Manifest(state.id)
    lost = [
        f"{field} is set, and there is no place for it"
        for field in state.__struct_fields__
        if field not in _HELD and getattr(state, field) != getattr(plain, field)
    ]
    if state.epoch is None:
        lost.append("epoch is none yet, which would become 0")
    elif not _fits(state.epoch):
        lost.append(f"epoch is {state.epoch}, not an unsigned 64-bit number")
    if not _fits(state.event_count):
        lost.append(f"event_count is {state.event_count}, not an unsigned 64-bit number")
    for source, offset in sorted(state.source_offsets.items()):
        if not isinstance(offset, int) or not _fits(offset):
            lost.append(f"source_offsets[{source!r}] is {offset!r}, not an unsigned 64-bit number")
    lost += [
        f"operator_states[{operator!r}] has {len(blob)} bytes, more than 2**32 - 1"
        for operator, blob in sorted(state.operator_states.items())
        if len(blob) >= 2**32
    ]
    return lost


def _fits(number: int) -> bool:
    return 0 <= number < 2**64


def _sized(blob: bytes) -> bytes:
    return _U32.pack(len(blob)) + blob


class _Reader:
    """Parses the bytes from the front; every error includes the position."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: struct.Struct, what: str) -> int:
        start = self._take(form.size, what)
        value: int = form.unpack_from(self._data, start)[0]
        return value

    def count(self, what: str, smallest: int) -> int:
        """Read a count; raise at once if the remaining bytes could never hold so many items."""
        number = self.number(_U32, f"the number of {what}")
        if number * smallest > len(self._data) - self._at:
            self.refuse(f"{number} {what} cannot be in the {len(self._data) - self._at} bytes left", self._at - 4)
        return number

    def blob(self, what: str) -> bytes:
        length = self.number(_U32, f"the length of {what}")
        start = self._take(length, what)
        return bytes(self._data[start : self._at])

    def name(self, what: str, taken: dict[str, bytes] | dict[str, Position]) -> str:
        start = self._at
        try:
            name = self.blob(f"the name of {'an' if what[0] == 'o' else 'a'} {what}").decode()
        except UnicodeDecodeError as error:
            self.refuse(f"the name of {what} {len(taken) + 1} is not UTF-8 ({error.reason})", start)
        if name in taken:
            self.refuse(f"the {what} {name!r} is there twice", start)
        return name

    def end(self) -> None:
        if left := len(self._data) - self._at:
            self.refuse(f"{left} trailing bytes follow the last source", self._at)

    def refuse(self, why: str, at: int) -> NoReturn:
        raise CorruptError(f"checkpoint in the seed's layout, byte {at}: {why}; export it again from its source")

    def _take(self, length: int, what: str) -> int:
        start = self._at
        if start + length > len(self._data):
            self.refuse(f"{what} needs {length} bytes, {len(self._data) - start} are left", start)
        self._at = start + length
        return start
