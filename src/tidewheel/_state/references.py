"""References from a manifest to state: files, the parts of a shard, and everything that a shard needs."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec

NAME_PATTERN: Final = r"\A/?[A-Za-z0-9_=-][A-Za-z0-9_.=-]*(?:/[A-Za-z0-9_=-][A-Za-z0-9_.=-]*)*\Z"
"""The pattern of stored file names: parts of plain characters that do not begin with a dot."""

FileName = Annotated[str, msgspec.Meta(pattern=NAME_PATTERN, max_length=1000)]
"""The name of a stored file. Decoding rejects all other text, because the name becomes a path or an object key."""
Count = Annotated[int, msgspec.Meta(ge=0)]

_WRITTEN_BY = re.compile(r"(?:.*/)?\d{20}-([^/-]+)-[^/]*")
"""The name of a state file, with the token of the run that wrote it."""

# Excluded from the cyclic garbage collector: these cannot be part of a cycle, and a driver holds a million of them.


class FileRef(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """An immutable state file: its name below the job's state folder, its size, and the checksum of its footer."""

    name: FileName
    size: Count
    checksum: Count


class Stretch(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Commits of one shard, from the sequence `first` to `last`, all made by the run with this token.

    A sequence and a run's token identify a commit. A sequence alone does not: after the state URL was restored from a
    backup, other commits get the same numbers.
    """

    first: Count
    last: Count
    run: str


class PartRef(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One shard's part of a state file.

    A delta of sequence `s` has the changes of commit `s`, or, if it was merged, of all commits from `first` to `s`. A
    snapshot of sequence `s` has the whole shard as of `s`.
    """

    file: FileRef
    sequence: Count
    bytes: Count
    keys: Count
    first: Count = 0
    """The oldest commit of a merged part; 0 if the part has only commit `sequence`."""
    made: tuple[Stretch, ...] = ()
    """The commits of a merged part, oldest first, as far as they are known. See `commits`."""

    @property
    def commits(self) -> tuple[Stretch, ...]:
        """The commits whose changes the part has, oldest first. The oldest may be missing."""
        if self.made:
            return self.made
        found = _WRITTEN_BY.fullmatch(self.file.name) if self.first == 0 else None
        # Versions that did not record `made` merged parts too: such a part is identified only by its name.
        return (Stretch(self.sequence, self.sequence, self.file.name if found is None else found[1]),)


class ShardParts(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The parts of a complete shard: a snapshot, if there is one, and the later deltas in ascending sequence.

    Parts of one sequence have no key in common: deltas of several tasks, or a snapshot in several files, whose further
    parts are the first deltas.
    """

    snapshot: PartRef | None = None
    deltas: tuple[PartRef, ...] = ()

    def files(self) -> frozenset[FileRef]:
        """Return every file that this shard needs."""
        parts = self.deltas if self.snapshot is None else (self.snapshot, *self.deltas)
        return frozenset(part.file for part in parts)
