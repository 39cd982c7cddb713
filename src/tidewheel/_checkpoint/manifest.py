"""The manifest: what one commit says about a job. A checkpoint and a manifest are the same thing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tidewheel._checkpoint.fleet_ledger import FleetLedger
from tidewheel._checkpoint.shard_map import ShardMap
from tidewheel._checkpoint.transfer import Transfer
from tidewheel._state.references import FileRef, ShardParts
from tidewheel._state.type_description import Field
from tidewheel._time.frontier import Frontier
from tidewheel.errors import ConfigError

Kind = Literal[
    "batch", "epoch", "flush", "claim", "stop", "import", "restore", "handover", "fork", "upgrade", "reshard"
]
"""Why a commit was made. Each kind takes a sequence number. A `batch` is one of Spark's, an `epoch` has no input and delivers
an epoch, a `flush` delivers the last one; a `fork` is the first commit of its job."""


class CheckpointId(msgspec.Struct, frozen=True, eq=False, array_like=True):
    """Which checkpoint it is: the stream (a job's name) and the sequence.

    `created_at`, in nanoseconds since the Unix epoch, is told but is no part of the identity: equality, hash
    and order are those of `(stream_id, sequence)`.

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

    # Each comparison is written out: `msgspec.Struct` brings its own of those that are not, `!=` among them.
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
    """What the tasks staged for one sink in this commit; the tokens mean something to that sink only."""

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
    """What an operator's state is made of, so that tools can read it and a changed program is noticed."""

    kind: str
    codec: str
    version: int
    keys: int | None = None
    fingerprint: str = ""
    values: tuple[Field, ...] = ()
    """The types of the values that it keeps for users: a state, the sides of a join, the results of aggregates. May be empty."""


class PinnedCell(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a batch saw of a cell: its version and encoded value. The value `None` stands for the program's default."""

    version: int
    value: bytes | None = None


class ForkOrigin(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The job and the savepoint that a fork began from."""

    job: str
    savepoint: str


Position = int | str | list[Any] | dict[str, Any]
"""How far a source is read: a plain value, as JSON has them, that means something to that source only."""


class SeenFile(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A file that a source has taken: it is never read again."""

    source: str
    path: str
    """The path or URL, as the source lists it; with a prefix where one source has several lists of files."""
    number: int
    """Files are numbered in the order in which the source took them; several may have the same number."""
    modified_ms: int
    """When the file was modified last, in ms since 1970."""
    size: int


class SparkSource(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What one line of Spark's offsets belongs to."""

    name: str
    """The source in the program; empty for the clock that makes batches come while all sources are quiet."""
    kind: str
    log: int
    """The number of its log, under which `SparkLog.files` and `SparkLog.seen` have it. No other source ever gets it."""


class SparkLog(msgspec.Struct, frozen=True):
    """What Spark's checkpoint folder is rebuilt from.

    `query` is the query id in its `metadata` file. `offsets` and `commits` hold the text of the newest log
    files by batch number; `sources` says which source each line of the offsets is of. `files` holds small files of the
    sources by log and name, and `seen` the file sources' newest entries that have not yet gone into the manifest's
    `driver` parts. `logs` is how many numbers of logs were given out.
    """

    query: str
    offsets: dict[int, str] = {}
    commits: dict[int, str] = {}
    files: dict[str, str] = {}
    seen: tuple[str, ...] = ()
    sources: tuple[SparkSource, ...] = ()
    logs: int = 0


SinkPlace = tuple[str, str]
"""The name of a sink, and what it was: its kind and place, without credentials. An empty place is not known."""


class Manifest(msgspec.Struct, frozen=True):
    """One commit, whole: with the files it references, nothing else is needed to go on from it.

    Times and epochs are nanoseconds since the Unix epoch. An epoch of `None` means that there is none yet, which is
    not 0. `batch`, `now`, `parallelism`, `cells` and `carried_epoch` are those of the newest batch: with its parent, its
    source offsets and the program they are all that the batch depended on. Only the epoch that the operators had got
    before it may be above the parent's: batches that silence alone gave an epoch need no commit. Treat the mappings as
    frozen too; make a changed copy with `replace`.

    >>> Manifest(CheckpointId("orders", 1)).epoch is None
    True
    """

    id: CheckpointId
    kind: Kind = "batch"
    run: str = ""
    """The token of the run that made it."""
    host: str = ""
    """The host of the run that claimed the job."""
    batch: int | None = None
    """The number of the newest batch in it."""
    event_count: int = 0
    epoch: int | None = None
    """The merged epoch of all inputs: the watermark. It goes out with the next batch."""
    carried_epoch: int | None = None
    """The epoch that the newest batch carried, if that was new."""
    delivered_epoch: int | None = None
    """The epoch that the operators got last."""
    behind: dict[int, int | None] = {}
    """The shards that came from a holder whose clock was behind, each with the epoch that it got last."""
    source_offsets: dict[str, Position] = {}
    """By source: its position."""
    source_kinds: dict[str, str] = {}
    """By source: what its position is of (`Source.kind`)."""
    operator_states: dict[str, bytes] = {}
    """States held in the manifest itself, opaque; sharded state is in `shards`."""
    metadata: dict[str, str] = {}
    """Texts of the user's own. Tidewheel keeps nothing here."""
    n_shards: int = 64
    parallelism: int = 1
    now: int = 0
    """The pinned clock of the batch."""
    operators: dict[str, OperatorInfo] = {}
    former_operators: dict[int, dict[str, OperatorInfo]] = {}
    """The shards that came from a holder with another version of the program: what that program kept in them."""
    key_kinds: dict[str, str] = {}
    """The type of the keys that each `key_by` gave first: all its keys are of that type. And that of each operator's keys."""
    shards: Mapping[int, ShardParts] = {}
    """A `ShardMap` once it is in a store: its pages are read when they are first needed."""
    driver: ShardParts = ShardParts()
    """The driver's own tables, kept as one more shard: the files that sources have seen."""
    seen: tuple[SeenFile, ...] = ()
    """The newest files that sources have seen, which are not in `driver` yet."""
    outputs: tuple[StagedOutput, ...] = ()
    outputs_of: int | None = None
    """The commit whose output `outputs` is; `None`: this one's own."""
    published: int = 0
    """The output of all commits up to this sequence is published, or void."""
    retract: Span | None = None
    """The commits whose published output a restore made void. The next run takes it back from the sinks."""
    retracted: tuple[Span, ...] = ()
    """The commits whose output may have been taken back."""
    sinks: dict[SinkPlace, int] = {}
    """By sink and place: the newest commit whose output may be there. What a restore makes void is where it is above `after`."""
    cells: dict[str, PinnedCell] = {}
    frontiers: dict[str, Frontier] = {}
    counts: dict[str, int] = {}
    spark: SparkLog | None = None
    lineage: str = ""
    """Changes at a fork and a restore: equal sequences of unequal lineage may differ."""
    parent: int | None = None
    """The sequence this one continues."""
    flushed: int | None = None
    """The sequence of the final flush, if a bounded run has ended the job."""
    forked_from: ForkOrigin | None = None
    transfers_out: dict[str, Transfer] = {}
    """By id: keys that this job has let go, until the target has them."""
    transfers_in: tuple[str, ...] = ()
    """The ids of transfers that this job has taken in, as long as their notices are there."""
    fleet: FleetLedger | None = None
    """What a fleet's hand-over needs; `None` in a job that runs by itself."""

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def sequence(self) -> int:
        """The number of this commit."""
        return self.id.sequence

    def files(self) -> frozenset[FileRef]:
        """Return every state file that this checkpoint references."""
        return self.driver.files() | ShardMap.of(self.shards, self.n_shards).files()

    def pages(self) -> frozenset[FileRef]:
        """Return the pages that hold the parts of this checkpoint's shards."""
        return self.shards.pages() if isinstance(self.shards, ShardMap) else frozenset()

    def needed_names(self) -> frozenset[str]:
        """Return the names of all files that must stay as long as this checkpoint does."""
        return frozenset(file.name for file in self.files() | self.pages())

    def replace(self, **changes: Any) -> Manifest:
        """Return a copy with these fields changed."""
        return msgspec.structs.replace(self, **changes)
