"""Read the state of a checkpoint: one key, all keys, all state of a step. This does not disturb a running job."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from tidewheel._checkpoint.manifest import Manifest, OperatorInfo
from tidewheel._checkpoint.named_results import with_names
from tidewheel._checkpoint.pinning import hold_checkpoint, hold_savepoint
from tidewheel._checkpoint.state_files import opener, range_reader
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.tools.key_check import check_kind
from tidewheel._checkpoint.tools.restore import abandoned_name
from tidewheel._checkpoint.tools.savepoint import At, find
from tidewheel._core.keys import from_stored, shard_of_stored, to_stored
from tidewheel._state.codec import StateCodec, codec_named
from tidewheel._state.key_lookup import KeyLookup
from tidewheel._state.references import ShardParts
from tidewheel._state.segments import SUFFIX, segment_key, whole
from tidewheel._state.shard_contents import shard_items, shard_tables
from tidewheel._state.tagged import is_divided
from tidewheel._storage import Store
from tidewheel.errors import CorruptError, NotFound

HOLD_SECONDS = 3600.0
"""The default lifetime of a reader's pin."""

EXACTLY = 1_000_000
"""The maximum number of keys to count exactly, which takes some seconds."""


class Found(msgspec.Struct, frozen=True):
    """The result of a look-up: the committed value of a key, and its checkpoint."""

    step: str
    key: Any
    found: bool
    """Whether the key has state."""
    value: Any
    """The state; None if there is none."""
    sequence: int
    """The checkpoint's number."""


class StateReader:
    """The state of one checkpoint."""

    def __init__(self, store: Store, manifest: Manifest, lookup: KeyLookup | None = None) -> None:
        """Use the store at the state URL and the checkpoint; `lookup` can be shared with other checkpoints."""
        self.manifest = manifest
        self._fetch = opener(store, manifest.id.stream_id)
        self._lookup = lookup or KeyLookup(range_reader(store, manifest.id.stream_id))

    def info(self, step: str) -> OperatorInfo:
        """Return the description of a step with state; raise `NotFound`, with the existing ones, if it is unknown.

        `step/timers` and similar names select another table of a step.
        """
        known = self.manifest.operators
        info = known.get(step) or known.get(step.partition("/")[0])
        if info is None:
            there = f"there are {', '.join(map(repr, sorted(known)))}" if known else self._without_state()
            raise NotFound(
                f"checkpoint {self.manifest.sequence} of job {self.manifest.id.stream_id!r} has no step {step!r}; {there}"
            )
        return info

    def _without_state(self) -> str:
        """Return why the checkpoint has no steps, and where steps that the job may have had are."""
        begun = "it is from before the job's first batch"
        if self.manifest.kind != "restore":
            return begun
        return (
            f"{begun}, since the job was restored to checkpoint {self.manifest.parent}. What it had before that is the savepoint "
            f"{abandoned_name(self.manifest.sequence)}"
        )

    def codec(self, step: str) -> StateCodec:
        """Return the codec of a step's state, as recorded in the checkpoint; refuse a codec whose decoding runs code.

        It decodes aggregates as the results that the program names, and joins with named waiting entries. A user's own
        codec returns them as stored.
        """
        info = self.info(step)
        codec = codec_named(info.codec)
        return codec if "/" in step else with_names(info, codec)

    def get(self, step: str, key: Any, codec: StateCodec | None = None) -> Found:
        """Look up one key, in at most two rounds of reads; raise `StateError` if the step's keys have another type."""
        codec = codec or self.codec(step)
        stored = to_stored(key)
        shard = shard_of_stored(stored, self.manifest.n_shards)
        parts = self.manifest.shards.get(shard, ShardParts())
        raw = self._lookup.get(parts, shard, step, stored)
        if raw is None:
            check_kind(step, from_stored(stored), self.manifest.key_kinds)
        else:
            raw = self._whole(step, shard, stored, raw)
        value = None if raw is None else codec.decode(raw)
        return Found(step, key, raw is not None, value, self.manifest.sequence)

    def scan(self, step: str, codec: StateCodec | None = None, prefix: str = "") -> Iterator[tuple[Any, Any]]:
        """Yield every key of a step with its value, shard by shard; with `prefix`, only text keys that start with it."""
        codec = codec or self.codec(step)
        for key, raw in self.raw(step, prefix):
            yield key, codec.decode(raw)

    def keys(self, step: str, prefix: str = "") -> Iterator[Any]:
        """Yield every key of a step, shard by shard."""
        self.info(step)
        return (from_stored(stored) for _, stored, _ in self._entries(step, prefix))

    def count(self, step: str, exactly: int = EXACTLY) -> tuple[int, bool]:
        """Return a step's number of keys, and whether it is exact.

        If its files have more than `exactly` keys, the number comes from their indexes, which also count keys that are
        in several files or were deleted since.
        """
        held = 0
        for shard, parts in self.manifest.shards.items():
            for part in (parts.snapshot, *parts.deltas):
                if part is not None:
                    entries = self._fetch(part.file).entries(shard, step)
                    held += sum(entry.count - entry.dropped for entry in entries)
        return (held, False) if held > exactly else (sum(1 for _ in self._entries(step, "")), True)

    def raw(self, step: str, prefix: str = "") -> Iterator[tuple[Any, bytes]]:
        """Yield every key of a step with its encoded state."""
        for shard, stored, value in self._entries(step, prefix):
            yield from_stored(stored), self._whole(step, shard, stored, value)

    def tables(self, shard: int) -> set[str]:
        """Return the tables of a shard: those of steps and additional ones."""
        return shard_tables(self.manifest.shards[shard], shard, self._fetch)

    def shard(self, step: str, shard: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield a step's encoded state of one shard, with its stored keys, ascending."""
        return ((key, self._whole(step, shard, key, value)) for key, value in self.stored(step, shard))

    def _entries(self, step: str, prefix: str) -> Iterator[tuple[int, bytes, bytes]]:
        begin = to_stored(prefix) if prefix else b""
        for shard in sorted(self.manifest.shards):
            for stored, value in self.stored(step, shard):
                if stored.startswith(begin):
                    yield shard, stored, value

    def stored(self, step: str, shard: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of a table as stored: a state in segments is not assembled."""
        parts = self.manifest.shards.get(shard, ShardParts())
        return ((key, value) for _, key, value in shard_items(parts, shard, self._fetch, step))

    def _whole(self, step: str, shard: int, stored: bytes, raw: bytes) -> bytes:
        """Return a state as one value, whether stored in segments or not. State of other codecs is not parsed."""
        info = self.manifest.operators.get(step)
        if info is None or info.codec != "msgpack" or not is_divided(raw):
            return raw
        parts, table = self.manifest.shards[shard], f"{step}/{SUFFIX}"

        def load(number: int) -> bytes:
            segment = self._lookup.get(parts, shard, table, segment_key(stored, number))
            if segment is None:
                raise CorruptError(f"segment {number} of the state of key {from_stored(stored)!r} is not in {table!r}")
            return segment

        return whole(raw, load)


def hold(checkpoints: StreamCheckpoints, at: At, seconds: float = HOLD_SECONDS) -> tuple[Manifest, str]:
    """Pin a checkpoint for a reader; return it and the name of the pin, which expires by itself."""
    name = f"reader-{secrets.token_hex(6)}"
    expires = time.time_ns() + int(seconds * 1e9)
    if isinstance(at, str):
        return hold_savepoint(checkpoints, at, name, "reader", expires_at=expires), name
    while True:
        sequence = find(checkpoints).sequence if at is None else at
        try:
            return hold_checkpoint(checkpoints, sequence, name, "reader", expires_at=expires), name
        except NotFound:
            if at is not None or sequence in checkpoints.sequences():
                raise
            # The newest checkpoint was replaced and dropped before it was pinned; there is a newer one now.


@contextmanager
def held(store: Store, checkpoints: StreamCheckpoints, at: At = None) -> Iterator[StateReader]:
    """Pin a checkpoint for reading until the block ends, or for at most an hour."""
    manifest, name = hold(checkpoints, at)
    try:
        yield StateReader(store, manifest)
    finally:
        checkpoints.pins.drop(name)
