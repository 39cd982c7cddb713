"""The parts of every shard, as a mapping that is read, changed and encoded by groups of shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from tidewheel._checkpoint.pages import (
    Change,
    LoadPage,
    change_of,
    changed,
    decode_patch,
    encode_change,
    encode_page,
    encode_patch,
    page_count,
)
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel._state.references import FileRef, ShardParts
from tidewheel.errors import CorruptError, StateError

_EMPTY_PATCH = encode_patch(())

_Read = TypeVar("_Read", bound=Mapping[int, object])


class Group:
    """The parts of one group's shards: its page and the changes since. Immutable, with a cache of decoded parts."""

    __slots__ = ("_changes", "_encoded", "_files", "_load", "_of", "_old", "_parts", "_patch", "page")

    def __init__(self, page: FileRef | None = None, patch: bytes | msgspec.Raw = _EMPTY_PATCH) -> None:
        self.page = page
        self._patch: bytes | msgspec.Raw | None = patch
        self._load: LoadPage | None = None
        self._of: tuple[int, int] = (0, 1)
        self._old: Mapping[int, ShardParts] | None = None if page else {}
        self._changes: dict[int, Change] | None = None
        self._encoded: dict[int, bytes] = {}
        self._parts: dict[int, ShardParts | None] = {}
        self._files: frozenset[FileRef] | None = None

    @classmethod
    def stored(
        cls, page: FileRef | None, patch: msgspec.Raw, load: LoadPage | None, place: int = 0, count: int = 1
    ) -> Group:
        """Return a group of a manifest, with its index among `count` groups; `load` reads its page on first use.

        Raises if the page or patch has a shard of another group.
        """
        group = cls(page, patch)
        group._load, group._of = load, (place, count)
        return group

    def get(self, shard: int) -> ShardParts | None:
        """Return a shard's parts; None if the job does not have the shard."""
        try:
            return self._parts[shard]
        except KeyError:
            change = self.changes().get(shard)
            old = self.old().get(shard) if change is None or change.kept >= 0 else None
            parts = self._parts[shard] = old if change is None else changed(change, old)
            return parts

    def shards(self) -> set[int]:
        """Return the shards of the group that the job has."""
        changes = self.changes()
        gone = {shard for shard, change in changes.items() if change.parts is None}
        return (set(self.old()) | set(changes)) - gone

    def parts(self) -> dict[int, ShardParts]:
        """Return the parts of all shards of the group."""
        found = ((shard, self.get(shard)) for shard in sorted(self.shards()))
        return {shard: parts for shard, parts in found if parts is not None}

    def with_changes(self, changes: Mapping[int, ShardParts | None]) -> Group:
        """Return the group after a commit that changed the parts of these shards; None removes a shard."""
        group = Group(self.page)
        old = group._old = self.old()
        group._changes = {**self.changes()}
        group._encoded = self._encoded.copy()
        group._parts = {**self._parts, **changes}
        group._patch = None
        for shard, parts in changes.items():
            group._encoded.pop(shard, None)
            before = old.get(shard)
            if parts is None and before is None:
                group._changes.pop(shard, None)
            else:
                group._changes[shard] = change_of(shard, before, parts)
        # A group without shards no longer needs its page.
        return group if None not in changes.values() or group.shards() else Group()

    def as_page(self) -> bytes:
        """Encode all parts of the group as a page."""
        return encode_page(self.parts())

    def on_page(self, page: FileRef) -> Group:
        """Return the group without changes, after `as_page` was stored as `page`."""
        group = Group(page)
        group._old, group._changes, group._files = self.parts(), {}, self._files
        return group

    @property
    def patch(self) -> bytes | msgspec.Raw:
        """The encoded changes since the page was written."""
        if self._patch is None:
            encoded, changes = self._encoded, self.changes()
            for shard in changes.keys() - encoded.keys():
                _check_names(changes[shard].parts)
                encoded[shard] = encode_change(changes[shard])
            self._patch = encode_patch([encoded[shard] for shard in sorted(changes)])
        return self._patch

    @property
    def patch_bytes(self) -> int:
        """The size of the patch in a manifest; 0 if nothing changed since the page was written."""
        return len(self.patch) - len(_EMPTY_PATCH)

    def files(self) -> frozenset[FileRef]:
        """Return the state files that the group's shards need."""
        if self._files is None:
            self._files = frozenset(file for parts in self.parts().values() for file in parts.files())
        return self._files

    def old(self) -> Mapping[int, ShardParts]:
        """Return the parts on the page."""
        if self._old is None:
            assert self.page is not None, "a group without a page has nothing old"
            if self._load is None:
                raise StateError(
                    f"the checkpoint refers to the page {self.page.name}, and it was read from bytes alone, without a store"
                )
            self._old = self._checked(self._load(self.page), f"the page {self.page.name}")
        return self._old

    def changes(self) -> dict[int, Change]:
        """Return the decoded patch."""
        if self._changes is None:
            try:
                self._changes = self._checked(decode_patch(self.patch), "a checkpoint's patch")
            except UNDECODABLE as error:
                raise CorruptError(
                    f"a checkpoint's patch does not decode ({error}); it was not written by this format"
                ) from None
        return self._changes

    def _checked(self, read: _Read, what: str) -> _Read:
        place, count = self._of
        strange = next((shard for shard in read if shard % count != place), None)
        if strange is not None:
            raise CorruptError(
                f"{what} of group {place} of {count} has the shard {strange}, which belongs to another group; it was not written "
                "by this format"
            )
        return read

    def same_as(self, other: Group) -> bool:
        """Compare two groups without reading their pages; False does not rule out that they are equal."""
        return self is other or (self.page == other.page and bytes(self.patch) == bytes(other.patch))


class ShardMap(Mapping[int, ShardParts]):
    """The parts of a job's shards by number. Immutable; a page is read when one of its shards is first used.

    >>> shards = ShardMap.of({3: ShardParts()}, n_shards=64)
    >>> sorted(shards.with_parts({4: ShardParts()})), list(shards)
    ([3, 4], [3])
    """

    __slots__ = ("groups",)

    def __init__(self, groups: Iterable[Group]) -> None:
        self.groups = tuple(groups)

    @classmethod
    def of(
        cls, shards: Mapping[int, ShardParts], n_shards: int, known: Mapping[int, ShardParts] | None = None
    ) -> ShardMap:
        """Convert any mapping to a `ShardMap`, which shares pages with `known`, the map of an earlier commit."""
        if isinstance(shards, ShardMap):
            return shards
        count = page_count(n_shards)
        base = known if isinstance(known, ShardMap) and len(known.groups) == count else cls([Group()] * count)
        gone: dict[int, ShardParts | None] = dict.fromkeys(base.keys() - shards.keys())
        return base.with_parts(
            {**gone, **{shard: parts for shard, parts in shards.items() if base.get(shard) != parts}}
        )

    def with_parts(self, changes: Mapping[int, ShardParts | None]) -> ShardMap:
        """Return the map with other parts for some shards; None removes a shard. The cost depends only on the changes."""
        count = len(self.groups)
        by_group: dict[int, dict[int, ShardParts | None]] = {}
        for shard, parts in changes.items():
            by_group.setdefault(shard % count, {})[shard] = parts
        groups = list(self.groups)
        for place, group_changes in by_group.items():
            groups[place] = groups[place].with_changes(group_changes)
        return ShardMap(groups)

    def with_pages(self, pages: Mapping[int, FileRef]) -> ShardMap:
        """Return the same map with these groups on new pages, which contain all parts of the groups."""
        groups = list(self.groups)
        for place, page in pages.items():
            groups[place] = groups[place].on_page(page)
        return ShardMap(groups)

    def pages(self) -> frozenset[FileRef]:
        """Return the pages that the map refers to."""
        return frozenset(group.page for group in self.groups if group.page is not None)

    def files(self) -> frozenset[FileRef]:
        """Return the state files that the shards need."""
        return frozenset().union(*(group.files() for group in self.groups))

    def of_task(self, task: int, parallelism: int) -> Iterator[int]:
        """Yield the existing shards of a task, ascending; pages without a shard of the task are not read."""
        count = len(self.groups)
        places = {shard % count for shard in range(task, task + count * parallelism, parallelism)}
        shards = {shard for place in places for shard in self.groups[place].shards()}
        return iter(sorted(shard for shard in shards if shard % parallelism == task))

    def get(self, shard: int, default: Any = None) -> Any:
        """Return a shard's parts, or the default."""
        parts = self.groups[shard % len(self.groups)].get(shard) if self.groups else None
        return default if parts is None else parts

    def __getitem__(self, shard: int) -> ShardParts:
        parts: ShardParts | None = self.get(shard)
        if parts is None:
            raise KeyError(shard)
        return parts

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(shard for group in self.groups for shard in group.shards()))

    def __len__(self) -> int:
        return sum(len(group.shards()) for group in self.groups)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        if isinstance(other, ShardMap) and len(other.groups) == len(self.groups):
            pairs = zip(self.groups, other.groups, strict=True)
            return all(mine.same_as(theirs) or mine.parts() == theirs.parts() for mine, theirs in pairs)
        return dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ShardMap({dict(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def _check_names(parts: ShardParts | None) -> None:
    """Raise if two files of the parts have the same name, before they are committed."""
    if parts is None or (parts.snapshot is None and len(parts.deltas) < 2):
        return
    names: dict[str, FileRef] = {}
    for file in parts.files():
        if names.setdefault(file.name, file) != file:
            raise StateError(f"the checkpoint refers to the file {file.name!r} twice, with unequal sizes or checksums")
