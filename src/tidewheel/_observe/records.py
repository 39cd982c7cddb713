"""What the history holds: a commit's figures, a run, an error; and their form at the state URL.

Every record is a small array, and records of one kind are stored together, compressed. Fields are added at the end, with
defaults: older records then read as newer ones, and newer ones as older.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec
import zstandard

from tidewheel._core.decompression import expand
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel.errors import CorruptError

_MAGIC = b"TWH1"
_LARGEST = 64 << 20
"""How large a chunk may become when it is decompressed: a damaged or hostile one must not fill the memory."""


class Behind(msgspec.Struct, frozen=True, array_like=True):
    """What a partition of a source holds that was not read when this was asked."""

    rows: int
    seconds: float = 0.0
    """For how long the oldest of these rows has waited, as far as is known: it was seen that long ago."""
    files: int | None = None
    """For a source of files, how many wait; then `rows` is 0, since nobody has counted theirs."""


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """How much state there is: keys as of a commit, and bytes in the local copies as of the one before."""

    keys: int
    bytes: int


class Published(msgspec.Struct, frozen=True, array_like=True):
    """What one sink published of a commit."""

    rows: int
    seconds: float = 0.0


class DeadLetter(msgspec.Struct, frozen=True, array_like=True):
    """A record that an operator put aside, cut short: whole it is in the dead-letter sink."""

    operator: str
    key: str | None
    record: str
    error: str
    traceback: str = ""


ENOUGH_FOR_SHARES = 100
"""Of fewer messages, shares of keys say nothing, and are not noted."""


class CommitRecord(msgspec.Struct, frozen=True, array_like=True):
    """The figures of one commit. Mappings are by operator unless it says otherwise; absent names stand for 0.

    Times are ns since 1970.
    """

    sequence: int
    at: int
    """When it was committed."""
    kind: str = "batch"
    run: str = ""
    """The token of the run."""
    node: str = ""
    """The node of a fleet; empty where the job runs by itself."""
    batch: int | None = None
    """The number of the batch."""
    parallelism: int = 1
    tasks: int = 1
    """How many tasks the batch had: the parallelism, or 1 if it was small."""
    seconds: float = 0.0
    """From the batch's start to its output being visible."""
    steps: dict[str, float] = {}
    """Of these, the seconds of `offsets`, `read`, `tasks`, `commit` and `publish`; the rest is Spark's own work on the batch."""
    rows: int = 0
    """Records that the sources gave."""
    rows_in: dict[str, int] = {}
    """Messages that reached each operator; those of a source are what it gave."""
    rows_out: dict[str, int] = {}
    """Messages that left each operator; those of a sink are what it staged."""
    busy: dict[str, float] = {}
    """Seconds that the operators' own code took, over all tasks."""
    late: dict[str, int] = {}
    dropped: dict[str, int] = {}
    """Messages that no branch of a `split` wanted."""
    dead: dict[str, int] = {}
    """Payloads that did not decode, and records that went to the dead-letter sink."""
    changed: dict[str, int] = {}
    """Keys whose state changed."""
    stored: dict[str, Stored] = {}
    """All state of each operator."""
    shards: dict[str, dict[int, Stored]] = {}
    """The same by operator and shard. In some records only, about one a minute, and in the last one of a run."""
    epoch: int | None = None
    """The clock of the data; None: there is none yet, or a bounded run has ended the job."""
    behind: dict[str, dict[str, Behind]] = {}
    """By source and partition, for sources that can tell."""
    delta_bytes: int = 0
    deltas: int = 0
    """Shards that changed."""
    snapshot_bytes: int = 0
    snapshots: int = 0
    """Shards that were written whole beside the batches, and adopted by this commit."""
    caught_up_bytes: int = 0
    """Bytes of state files that local copies took in."""
    published: dict[str, Published] = {}
    """By sink."""
    cells: dict[str, int] = {}
    """The version of each cell that the batch saw."""
    events: int = 0
    """Events of the sources in all commits of the chain together."""
    held: int | None = None
    """How many shards the run has; None: all."""
    skew: float = 0.0
    """Keys of the largest shard, divided by the mean of all shards that hold any; 0 if none does."""
    letters: tuple[DeadLetter, ...] = ()
    """A few of the records that were put aside."""
    merged_bytes: int = 0
    """Bytes of changes that were merged with each other beside the batches, and adopted by this commit."""
    hot: dict[str, dict[str, float]] = {}
    """By `key_by`, the keys with more than a twentieth of its messages, as Python shows them, with their shares; by a sample."""


class OperatorRecord(msgspec.Struct, frozen=True, array_like=True):
    """An operator of a run's graph."""

    name: str
    kind: str
    """What the program calls it."""
    level: int
    stateful: bool = False
    inputs: tuple[tuple[str, int], ...] = ()
    """The operators that it reads, each with the number of the output."""


class RunRecord(msgspec.Struct, frozen=True, array_like=True):
    """A run: who, where, since when, and the graph of its program."""

    run: str
    at: int
    node: str = ""
    host: str = ""
    pid: int = 0
    version: str = ""
    n_shards: int = 0
    operators: tuple[OperatorRecord, ...] = ()
    ended: int | None = None
    """When it ended in order; None: it runs, has failed, or was killed."""


class ErrorRecord(msgspec.Struct, frozen=True, array_like=True):
    """An error of a run."""

    at: int
    run: str
    text: str
    kind: str = ""
    """The name of its class."""
    traceback: str = ""
    node: str = ""
    batch: int | None = None
    sequence: int | None = None
    """The newest commit at the time."""
    restarted: bool = False
    """Whether the run went on from the last commit."""


class LagRecord(msgspec.Struct, frozen=True, array_like=True):
    """What waits in the sources of a run, as it was last seen to differ. Of a run that goes on it holds until the next one."""

    at: int
    run: str
    behind: dict[str, dict[str, Behind]] = {}
    """By source and partition, for sources that can tell."""


_Record = TypeVar("_Record", CommitRecord, RunRecord, ErrorRecord, LagRecord)


class Form(Generic[_Record]):
    """How records of one kind are stored: a mark, then their array, compressed, with a checksum."""

    def __init__(self, kind: type[_Record]) -> None:
        """Take the kind of the records."""
        self._encoder = msgspec.msgpack.Encoder()
        self._many: msgspec.msgpack.Decoder[list[msgspec.Raw]] = msgspec.msgpack.Decoder(list[msgspec.Raw])
        self._one: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(kind)
        self._all: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(list[kind])  # type: ignore[valid-type]

    def encode(self, records: list[_Record]) -> bytes:
        """Return the records as one object."""
        raw = self._encoder.encode(records)
        return _MAGIC + zstandard.ZstdCompressor(level=3, write_checksum=True).compress(raw)

    def decode(self, data: bytes) -> list[_Record]:
        """Return the records of an object; those that cannot be read are left out. `CorruptError`: none can."""
        if not data.startswith(_MAGIC):
            raise CorruptError("it does not begin as history does")
        try:
            raw = expand(memoryview(data)[len(_MAGIC) :], limit=_LARGEST)
        except ValueError as error:
            raise CorruptError(f"it does not decode ({error})") from None
        try:
            every: list[_Record] = self._all.decode(raw)
            return every
        except UNDECODABLE:
            pass  # One by one, then: some may be of another version.
        try:
            items = self._many.decode(raw)
        except UNDECODABLE as error:
            raise CorruptError(f"it does not decode ({error})") from None
        records = []
        for item in items:
            try:
                records.append(self._one.decode(item))
            except UNDECODABLE:
                continue
        return records


COMMITS = Form(CommitRecord)
RUNS = Form(RunRecord)
ERRORS = Form(ErrorRecord)
LAG = Form(LagRecord)
