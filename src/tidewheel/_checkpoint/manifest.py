"""The manifest: the content of one commit of a job. A checkpoint and a manifest are the same."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from tidewheel._checkpoint.fleet_ledger import FleetLedger
from tidewheel._checkpoint.names import own
from tidewheel._checkpoint.shard_map import ShardMap
from tidewheel._state.layout import StateLayout
from tidewheel._state.references import Count, FileRef, ShardParts
from tidewheel._state.type_description import Field
from tidewheel._time.frontier import Frontier
from tidewheel.errors import ConfigError

Kind = Literal[
    "batch", "epoch", "flush", "claim", "stop", "import", "restore", "handover", "fork", "upgrade", "reshard", "table"
]
"""The reason for a commit. Each kind takes a sequence number.

A `batch` is one of Spark's, an `epoch` has no input and delivers an epoch, a `flush` delivers the last epoch; a `fork`
is the first commit of its job. A `table` pins new versions of reference tables for the batches after it.
"""


LayoutKind = Literal["", "one", "shared", "divided"]
"""How a batch was divided among tasks (`_engine.task_layout`): it ran in one task, each task read all of it, or each a part.

Empty if no task ran, or an older version made the commit.
"""


class CheckpointId(msgspec.Struct, frozen=True, eq=False, array_like=True):
    """The identity of a checkpoint: the stream (a job's name) and the sequence.

    `created_at`, in nanoseconds since the Unix epoch, is not part of the identity: equality, hash and order are those
    of `(stream_id, sequence)`.

    >>> CheckpointId("orders", 7, created_at=1) == CheckpointId("orders", 7, created_at=2)
    True
    """

    stream_id: str
    sequence: int
    created_at: int = msgspec.field(default_factory=time.time_ns)

    def __post_init__(self) -> None:
        if not self.stream_id:
            raise ConfigError("a checkpoint needs the name of its stream; the name given is empty")
        if not 0 <= self.sequence < 2**63:
            raise ConfigError(f"a checkpoint's sequence is a number from 0 to 2**63 - 1, not {self.sequence}")

    # All comparisons are defined, including `!=`: `msgspec.Struct` would add its own for missing ones.
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CheckpointId):
            return NotImplemented
        return (self.stream_id, self.sequence) == (other.stream_id, other.sequence)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: CheckpointId) -> bool:
        return (self.stream_id, self.sequence) < (other.stream_id, other.sequence)

    def __le__(self, other: CheckpointId) -> bool:
        return (self.stream_id, self.sequence) <= (other.stream_id, other.sequence)

    def __gt__(self, other: CheckpointId) -> bool:
        return other < self

    def __ge__(self, other: CheckpointId) -> bool:
        return other <= self

    def __hash__(self) -> int:
        return hash((self.stream_id, self.sequence))


class StagedOutput(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The output that tasks staged for one sink in this commit; only that sink understands the tokens."""

    sink: str
    rows: int
    tokens: tuple[bytes, ...] = ()


class Span(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The sequences above `after` and below `before`."""

    after: int
    before: int

    def __contains__(self, sequence: int) -> bool:
        return self.after < sequence < self.before


class OperatorInfo(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The type of a step's state, so that tools can read it and a changed program is detected."""

    kind: str
    codec: str
    version: int
    keys: int | None = None
    layout: StateLayout = StateLayout()
    values: tuple[Field, ...] = ()
    """The types of the step's values: a state, the sides of a join, the results of aggregates. May be empty."""


class PinnedCell(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The cell value that a batch used: its version and encoded value. `None` means the program's default."""

    version: int
    value: bytes | None = None


class PinnedTable(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The version of a reference table that batches use: its rows are in files next to the state."""

    version: Count
    rows: Count
    loaded_at: int
    """When it was read from its source, in ns since 1970."""
    digest: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{1,64}\Z")]
    """Equal for equal rows and columns. Part of the name of local copies."""
    files: tuple[FileRef, ...] = ()
    """The files with its rows, part by part, in order."""
    later_parts: tuple[Count, ...] = ()
    """Where the files of each part but the first begin. Large tables are divided by the hashes of their keys."""

    def __post_init__(self) -> None:
        bounds = (0, *self.later_parts, len(self.files))
        if self.later_parts and any(begin >= end for begin, end in itertools.pairwise(bounds)):
            raise ValueError("each part of a table has files")
        if (len(self.later_parts) + 1).bit_count() != 1:
            raise ValueError("the number of parts of a table is a power of two")

    def files_of(self, part: int) -> tuple[FileRef, ...]:
        """Return the files of a part."""
        bounds = (0, *self.later_parts, len(self.files))
        return self.files[bounds[part] : bounds[part + 1]]


class ForkOrigin(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The job and the savepoint that a fork started from."""

    job: str
    savepoint: str


Position = int | str | list[Any] | dict[str, Any]
"""The position of a source: a JSON value that only the source understands."""


class SeenFile(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A file that a source has read and never reads again."""

    source: str
    path: str
    """The path or URL, as the source lists it; with a prefix if one source has several lists of files."""
    number: int
    """Files are numbered in the order in which the source read them; several can have the same number."""
    modified_ms: int
    """The file's modification time, in ms since 1970."""
    size: int


class SparkSource(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The owner of one line of Spark's offsets."""

    name: str
    """The source in the program; empty for the clock that triggers batches while all sources are quiet."""
    kind: str
    log: int
    """The number of its log in `SparkLog.files` and `SparkLog.seen`. It is never reused for another source."""


class SparkLog(msgspec.Struct, frozen=True):
    """The data from which Spark's checkpoint folder is rebuilt.

    `query` is the query id in its `metadata` file. `offsets` and `commits` hold the text of the newest log files by
    batch number; `sources` assigns each line of the offsets to a source. `files` holds small files of the sources by
    log and name, and `seen` the file sources' newest entries that are not yet in the manifest's `driver` parts. `logs`
    is the number of assigned log numbers.
    """

    query: str
    offsets: dict[int, str] = {}
    commits: dict[int, str] = {}
    files: dict[str, str] = {}
    seen: tuple[str, ...] = ()
    sources: tuple[SparkSource, ...] = ()
    logs: int = 0


SinkPlace = tuple[str, str]
"""The name of a sink, and its kind and place without credentials. An empty place is unknown."""


class Manifest(msgspec.Struct, frozen=True):
    """One commit. Together with the files it references, it is all that a job needs to continue.

    Times and epochs are nanoseconds since the Unix epoch. An epoch of `None` means that there is none yet, which is not
    0. `batch`, `now`, `parallelism`, `layout`, `cells` and `carried_epoch` belong to the newest batch: together with its parent,
    its source offsets and the program, they determine the batch. Only the epoch that the steps had received before
    the batch can be above the parent's: batches that only received an epoch because of silence need no commit. Treat
    the mappings as frozen too; make a changed copy with `replace`.

    >>> Manifest(CheckpointId("orders", 1)).epoch is None
    True
    """

    id: CheckpointId
    kind: Kind = "batch"
    run: str = ""
    """The token of the run that made the commit."""
    host: str = ""
    """The host of the run that claimed the job."""
    batch: int | None = None
    """The number of the newest included batch."""
    event_count: int = 0
    epoch: int | None = None
    """The merged epoch of all inputs: the watermark. The next batch delivers it."""
    carried_epoch: int | None = None
    """The epoch that the newest batch delivered, if it was new."""
    delivered_epoch: int | None = None
    """The last epoch that the steps received."""
    behind: dict[int, int | None] = {}
    """Shards from a holder whose clock was behind, each with the last epoch that it received."""
    source_offsets: dict[str, Position] = {}
    """Positions by source."""
    source_kinds: dict[str, str] = {}
    """By source: the kind of its position (`Source.kind`)."""
    operator_states: dict[str, bytes] = {}
    """Opaque states stored in the manifest itself; sharded state is in `shards`."""
    metadata: dict[str, str] = {}
    """The user's own texts. Tidewheel stores nothing here."""
    n_shards: int = 64
    parallelism: int = 1
    now: int = 0
    """The time of the batch."""
    operators: dict[str, OperatorInfo] = {}
    former_operators: dict[int, dict[str, OperatorInfo]] = {}
    """Shards from a holder with another version of the program, with the steps of that program."""
    key_kinds: dict[str, str] = {}
    """The type of the first keys of each `key_by`, which all its keys must have, and the key type of each step."""
    shards: Mapping[int, ShardParts] = {}
    """A `ShardMap` once it is in a store: its pages are read when they are first needed."""
    driver: ShardParts = ShardParts()
    """The driver's own tables, stored like one more shard: the files that sources have read."""
    seen: tuple[SeenFile, ...] = ()
    """The newest files that sources have read and that are not in `driver` yet."""
    outputs: tuple[StagedOutput, ...] = ()
    outputs_of: int | None = None
    """The commit that `outputs` belongs to; `None` means this commit."""
    published: int = 0
    """The output of all commits up to this sequence is published or void."""
    retract: Span | None = None
    """The commits whose published output a restore made void. The next run removes it from the sinks."""
    retracted: tuple[Span, ...] = ()
    """The commits whose output may have been removed from sinks."""
    sinks: dict[SinkPlace, int] = {}
    """By sink and place: the newest commit whose output may be there. A restore makes output above `after` void."""
    cells: dict[str, PinnedCell] = {}
    frontiers: dict[str, Frontier] = {}
    counts: dict[str, int] = {}
    spark: SparkLog | None = None
    lineage: str = ""
    """Changes at a fork and a restore: equal sequences of different lineages can differ."""
    parent: int | None = None
    """The sequence of the previous commit."""
    flushed: int | None = None
    """The sequence of the final flush, if a bounded run has ended the job."""
    forked_from: ForkOrigin | None = None
    fleet: FleetLedger | None = None
    """The data for a fleet's hand-over; `None` in a job that runs alone."""
    tables: dict[str, PinnedTable] = {}
    """The reference tables that the next batch uses, by name; those of a batch are also in its own commit."""
    layout: LayoutKind = ""
    """How the newest batch was divided among tasks. Sums of floats, for example, depend on it."""
    source_starts: dict[str, Position] = {}
    """Where the newest batch began to read sources that no commit before had read: "the oldest record" moves."""

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def sequence(self) -> int:
        """The number of this commit."""
        return self.id.sequence

    def files(self) -> frozenset[FileRef]:
        """Return every file that this checkpoint references, except for pages."""
        return self.driver.files() | ShardMap.of(self.shards, self.n_shards).files() | self.table_files()

    def table_files(self) -> frozenset[FileRef]:
        """Return the files of the reference tables."""
        return frozenset(file for table in self.tables.values() for file in table.files)

    def pages(self) -> frozenset[FileRef]:
        """Return the pages that contain the parts of this checkpoint's shards."""
        return self.shards.pages() if isinstance(self.shards, ShardMap) else frozenset()

    def needed_names(self) -> frozenset[str]:
        """Return the names of all files that must exist as long as this checkpoint does.

        In a fleet these include the files of shards that were taken from the run: the taker refers to them only later.
        """
        names = frozenset(file.name for file in self.files() | self.pages())
        if self.fleet is None or not self.fleet.revoked:
            return names
        taken = (file.name for each in self.fleet.revoked.values() for file in each.parts.files())
        return names.union(own(self.id.stream_id, name) for name in taken)

    def replace(self, **changes: Any) -> Manifest:
        """Return a copy with these fields changed."""
        return msgspec.structs.replace(self, **changes)
