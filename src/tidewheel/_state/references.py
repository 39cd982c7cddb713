"""References from a manifest to state: files, the parts of a shard, and all that a shard needs to be whole."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec

NAME_PATTERN: Final = r"\A/?[A-Za-z0-9_=-][A-Za-z0-9_.=-]*(?:/[A-Za-z0-9_=-][A-Za-z0-9_.=-]*)*\Z"
"""What the name of a stored file looks like: parts of plain characters, none of which begins with a dot."""

FileName = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN, max_length=1000)]
"""The name of a stored file. Decoding refuses every other text, since the name becomes a path or the key of an object."""
Count = Annotated[int, msgspec.Meta(ge=0)]

_WRITTEN_BY = re.compile(r"(?:.*/)?\d{20}-([^/-]+)-[^/]*")
"""The name of a state file, with the token of the run that wrote it."""

# Without the cyclic garbage collector: these refer to nothing that could refer back, and a driver holds a million of them.


class FileRef(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """An immutable state file: its name below the job's state folder, its size, and the checksum of its footer."""

    name: FileName
    size: Count
    checksum: Count


class Stretch(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Commits of one shard, from the sequence `first` to `last`, that were all made by the run with this token.

    A sequence and a run's token identify a commit. A sequence alone does not: after the state URL was put back from a
    backup, other commits get the same numbers.
    """

    first: Count
    last: Count
    run: str


class PartRef(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One shard's part of a state file.

    A delta of sequence `s` holds what commit `s` changed, or all that the commits from `first` to `s` changed, if it was
    merged. A snapshot of sequence `s` holds the whole shard as of `s`.
    """

    file: FileRef
    sequence: Count
    bytes: Count
    keys: Count
    first: Count = 0
    """The oldest commit that it is of, if it was merged; 0: it is of commit `sequence` alone."""
    made: tuple[Stretch, ...] = ()
    """For a merged part, the commits that were merged, oldest first, as far as they are known. See `commits`."""

    @property
    def commits(self) -> tuple[Stretch, ...]:
        """The commits whose changes the part holds, oldest first. Older ones may be missing from the list."""
        if self.made:
            return self.made
        found = _WRITTEN_BY.fullmatch(self.file.name) if self.first == 0 else None
        # Versions that did not record `made` merged parts too: such a part is known by its own name alone.
        return (Stretch(self.sequence, self.sequence, self.file.name if found is None else found[1]),)


class ShardParts(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What makes one shard whole: a snapshot, if there is one, and the deltas after it in ascending sequence.

    Parts of one sequence have no key in common: deltas of several tasks, and a snapshot in several files, which has its
    further parts as the first deltas.
    """

    snapshot: PartRef | None = None
    deltas: tuple[PartRef, ...] = ()

    def files(self) -> frozenset[FileRef]:
        """Return every file that this shard needs."""
        parts = self.deltas if self.snapshot is None else (self.snapshot, *self.deltas)
        return frozenset(part.file for part in parts)
