"""Pages: the parts of a group of shards, stored outside the manifest in immutable files that manifests share.

A manifest has a slot for each group. A slot refers to the group's page, if one was ever written, and has a *patch*: the
changes since that page was written. A group without a page is only in its patch, so the manifest of a small job is one
object. When the patches together exceed `INLINE_BYTES`, the largest become pages: the cost of a commit depends on its
changes, not on the size of the job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Final

import msgspec
from xxhash import xxh64_intdigest

from tidewheel._checkpoint.envelope import seal, unseal
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel._state.references import FileRef, ShardParts
from tidewheel._storage import Store
from tidewheel.errors import CorruptError, NotFound

PAGE_SHARDS: Final = 128
"""The number of shards per page."""
INLINE_BYTES: Final = 1 << 20
"""The maximum total size of a manifest's patches; about a thousand shards with a dozen parts each."""

MAGIC = b"TIDEWPAG"
VERSION = 1
_HELD_BYTES = 64 << 20

Shard = Annotated[int, msgspec.Meta(ge=0)]


class Change(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The difference between a shard and its page."""

    shard: Shard
    kept: int
    """How many of the page's deltas stay, with its snapshot; `parts` has the later deltas. -1: nothing stays."""
    parts: ShardParts | None
    """None: the job no longer has the shard."""


LoadPage = Callable[[FileRef], Mapping[int, ShardParts]]
"""Reads a page."""

_encode = msgspec.msgpack.Encoder().encode
_decode_changes = msgspec.msgpack.Decoder(list[Change]).decode
_decode_page = msgspec.msgpack.Decoder(list[tuple[Shard, msgspec.Raw]]).decode
_decode_parts = msgspec.msgpack.Decoder(ShardParts).decode


def page_count(n_shards: int) -> int:
    """Return the number of groups. A shard's group is its number modulo this.

    A task's shards are selected modulo the parallelism. If that is a power of two, a task needs few pages or only one.

    >>> page_count(64), page_count(65536)
    (1, 512)
    """
    return max(1, n_shards // PAGE_SHARDS)


def pages_to_write(patch_bytes: Sequence[int], inline_bytes: int = INLINE_BYTES) -> list[int]:
    """Return the indexes of the patches to write as pages, so that at most `inline_bytes` remain.

    The largest come first: they free the most space per written page, and not all pages are written at once.

    >>> pages_to_write([10, 40, 30], inline_bytes=45)
    [1]
    """
    total = sum(patch_bytes)
    chosen = []
    for place in sorted(range(len(patch_bytes)), key=lambda place: -patch_bytes[place]):
        if total <= inline_bytes:
            break
        total -= patch_bytes[place]
        chosen.append(place)
    return chosen


def change_of(shard: int, old: ShardParts | None, parts: ShardParts | None) -> Change:
    """Return the patch entry of a shard whose page has `old`.

    >>> change_of(7, None, None)
    Change(shard=7, kept=-1, parts=None)
    """
    if parts is None or old is None or old.snapshot != parts.snapshot:
        return Change(shard, -1, parts)
    kept = len(old.deltas)
    if parts.deltas[:kept] != old.deltas:
        pairs = zip(old.deltas, parts.deltas, strict=False)
        kept = next((place for place, (before, after) in enumerate(pairs) if before != after), len(parts.deltas))
    return Change(shard, kept, ShardParts(None, parts.deltas[kept:]))


def changed(change: Change, old: ShardParts | None) -> ShardParts | None:
    """Apply a change to the parts of a shard on its page."""
    if change.kept < 0 or change.parts is None:
        return change.parts
    if old is None or change.kept > len(old.deltas):
        raise CorruptError(
            f"the patch of shard {change.shard} continues after {change.kept} deltas, and its page has "
            f"{0 if old is None else len(old.deltas)}; restore the job to another kept checkpoint"
        )
    return ShardParts(old.snapshot, old.deltas[: change.kept] + change.parts.deltas)


def encode_change(change: Change) -> bytes:
    """Encode one change."""
    return _encode(change)


def encode_patch(changes: Sequence[bytes]) -> bytes:
    """Join encoded changes into a patch."""
    # A msgpack array of already encoded items: write its header, then the items unchanged.
    head = bytes([0x90 | len(changes)]) if len(changes) < 16 else b"\xdd" + len(changes).to_bytes(4, "big")
    return head + b"".join(changes)


def decode_patch(data: bytes | memoryview | msgspec.Raw) -> dict[int, Change]:
    """Return the changes of a patch by shard; raise `msgspec.DecodeError` if it is invalid."""
    changes = _decode_changes(data)
    by_shard = {change.shard: change for change in changes}
    if len(by_shard) != len(changes):
        raise msgspec.DecodeError("a shard is there twice")
    return by_shard


def encode_page(parts: Mapping[int, ShardParts]) -> bytes:
    """Encode a group's parts as a page; equal parts give equal bytes."""
    return seal(MAGIC, VERSION, _encode(sorted(parts.items())))


class StoredPage(Mapping[int, ShardParts]):
    """The parts of a page; each is decoded on first use."""

    def __init__(self, data: bytes, ref: FileRef, where: str) -> None:
        """Use the bytes of a page; raise `CorruptError`, which names the page, if they do not match `ref`."""
        self._subject = f"page {ref.name} at {where}"
        found = int(xxh64_intdigest(data))
        if len(data) != ref.size or found != ref.checksum:
            raise CorruptError(
                f"{self._subject}: it has {len(data)} bytes with the xxh64 {found:016x}, and the manifest says {ref.size} with "
                f"{ref.checksum:016x}. It is damaged or not the one that was committed: put a good copy in its place, or "
                "restore the job to a checkpoint that does not need it"
            )
        _, body = unseal(MAGIC, VERSION, data, self._subject)
        try:
            pairs = _decode_page(body)
            self._raw = dict(pairs)
            if len(self._raw) != len(pairs):
                raise msgspec.DecodeError("a shard is there twice")
        except UNDECODABLE as error:
            raise self._refused(error) from None
        self._known: dict[int, ShardParts] = {}
        self.bytes = len(body)

    def __getitem__(self, shard: int) -> ShardParts:
        parts = self._known.get(shard)
        if parts is None:
            try:
                parts = self._known[shard] = _decode_parts(self._raw[shard])
            except UNDECODABLE as error:
                raise self._refused(error) from None
        return parts

    def __iter__(self) -> Iterator[int]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def _refused(self, error: Exception) -> CorruptError:
        return CorruptError(f"{self._subject}: its body does not decode ({error}); it was not written by this format")


class PageReader:
    """Reads the pages of one stream, with a cache per process: most pages do not change from commit to commit."""

    _held: dict[tuple[str, FileRef], StoredPage] = {}  # noqa: RUF012
    _bytes = 0
    _lock = threading.Lock()

    def __init__(self, folder: Store) -> None:
        """Use the folder of the stream."""
        self._folder = folder

    def __call__(self, ref: FileRef) -> StoredPage:
        """Return a page; raise `NotFound` or `CorruptError`, which name it, if it is missing or does not match."""
        key = (self._folder.url, ref)
        page = self._held.get(key)
        if page is None:
            try:
                data = self._folder.read(ref.name)
            except NotFound as error:
                raise NotFound(
                    f"page {ref.name} at {self._folder.url} is missing, and a checkpoint needs it ({error}): put it back from "
                    "a copy, or restore the job to a checkpoint that does not need it"
                ) from None
            page = StoredPage(data, ref, self._folder.url)
            self._hold(key, page)
        return page

    @classmethod
    def _hold(cls, key: tuple[str, FileRef], page: StoredPage) -> None:
        with cls._lock:
            while cls._held and cls._bytes + page.bytes > _HELD_BYTES:
                cls._bytes -= cls._held.pop(next(iter(cls._held))).bytes
            if key not in cls._held:
                cls._held[key] = page
                cls._bytes += page.bytes
