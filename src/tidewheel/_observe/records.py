"""The records of the history: a commit's figures, a run, an error; and their encoding.

Every record is a small array, and records of one kind are stored together, compressed. Fields are added at the end,
with defaults: older and newer versions can then read each other's records.
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
"""The maximum size of a chunk after decompression: a damaged or malicious one must not exhaust memory."""


class Behind(msgspec.Struct, frozen=True, array_like=True):
    """The unread data of a source's partition at the time of the measurement."""

    rows: int
    seconds: float = 0.0
    """How long the oldest of these rows has waited, as far as is known: it was first seen that long ago."""
    files: int | None = None
    """For a file source, the number of waiting files; `rows` is then 0, because their rows are not counted."""


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """The size of the state: keys as of a commit, and bytes in the local copies as of the previous one."""

    keys: int
    bytes: int


class Published(msgspec.Struct, frozen=True, array_like=True):
    """The output of a commit that one sink published."""

    rows: int
    seconds: float = 0.0


class DeadLetter(msgspec.Struct, frozen=True, array_like=True):
    """A truncated copy of a record that a step rejected; the dead-letter sink has the whole record."""

    step: str
    key: str | None
    record: str
    error: str
    traceback: str = ""


ENOUGH_FOR_SHARES = 100
"""With fewer messages, shares of keys are meaningless and not recorded."""


class Called(msgspec.Struct, frozen=True, array_like=True):
    """The calls of a `map_async` step."""

    calls: int = 0
    failures: int = 0
    """Calls that raised an error or took too long, including those that were repeated."""
    cached: int = 0
    """Records whose result was cached."""
    milliseconds: int = 0
    """The durations of all calls together."""


class CommitRecord(msgspec.Struct, frozen=True, array_like=True):
    """The figures of one commit. Mappings are by step unless noted otherwise; missing names mean 0.

    Times are ns since 1970.
    """

    sequence: int
    at: int
    """The time of the commit."""
    kind: str = "batch"
    run: str = ""
    """The token of the run."""
    node: str = ""
    """The node of a fleet; empty if the job runs alone."""
    batch: int | None = None
    """The number of the batch."""
    parallelism: int = 1
    tasks: int = 1
    """How many tasks the batch had: the parallelism, or 1 if it was small."""
    seconds: float = 0.0
    """The time from the batch's start until its output is visible."""
    phases: dict[str, float] = {}
    """The seconds of `offsets`, `read`, `tasks`, `commit` and `publish`; the rest is Spark's own work on the batch."""
    rows: int = 0
    """The number of records from the sources."""
    rows_in: dict[str, int] = {}
    """Messages that reached each step; for a source, those that it emitted."""
    rows_out: dict[str, int] = {}
    """Messages that left each step; for a sink, those that it staged."""
    busy: dict[str, float] = {}
    """Seconds in the steps' own code, over all tasks."""
    late: dict[str, int] = {}
    dropped: dict[str, int] = {}
    """Messages that went to no output of a `split`."""
    dead: dict[str, int] = {}
    """Payloads that failed to decode, and records that went to the dead-letter sink."""
    changed: dict[str, int] = {}
    """The number of keys whose state changed."""
    stored: dict[str, Stored] = {}
    """The size of each step's state."""
    shards: dict[str, dict[int, Stored]] = {}
    """The same by step and shard. Only in some records, about one per minute, and in the last one of a run."""
    epoch: int | None = None
    """The event time of the job; None if there is none yet, or a bounded run has ended the job."""
    behind: dict[str, dict[str, Behind]] = {}
    """By source and partition, for sources that can report it."""
    delta_bytes: int = 0
    deltas: int = 0
    """The number of changed shards."""
    snapshot_bytes: int = 0
    snapshots: int = 0
    """Shards that were rewritten in the background and adopted by this commit."""
    caught_up_bytes: int = 0
    """Bytes of state files that were applied to local copies."""
    published: dict[str, Published] = {}
    """By sink."""
    cells: dict[str, int] = {}
    """The version of each cell that the batch used."""
    events: int = 0
    """The number of events in all commits of the chain together."""
    held: int | None = None
    """The number of shards of the run; None means all."""
    skew: float = 0.0
    """The number of keys of the largest shard, divided by the mean over all shards with keys; 0 if there are none."""
    letters: tuple[DeadLetter, ...] = ()
    """A few of the rejected records."""
    merged_bytes: int = 0
    """Bytes of changes that were merged in the background and adopted by this commit."""
    hot: dict[str, dict[str, float]] = {}
    """By `key_by`: the keys, as Python shows them, with more than a twentieth of its messages, and their shares; by a sample."""
    called: dict[str, Called] = {}
    """By `map_async` step."""
    failed: dict[str, int] = {}
    """Records that do not meet an expectation (`expect`)."""
    tables: dict[str, tuple[int, int]] = {}
    """The version and the number of rows of each reference table that the batch used."""
    visits: int = 0
    """The number of shards with state that tasks have opened."""
    stale_visits: int = 0
    """How many of these had no local copy where the task ran, or one that lacked more than the shard's newest commit."""
    stale_bytes: int = 0
    """The part of `caught_up_bytes` that went into such copies."""
    ran_in: str = ""
    """Where the tasks ran, and whether messages were shuffled; empty: there were no tasks."""


class StepRecord(msgspec.Struct, frozen=True, array_like=True):
    """A step of a run's graph."""

    name: str
    kind: str
    """The name of the step in the API."""
    level: int
    stateful: bool = False
    inputs: tuple[tuple[str, int], ...] = ()
    """The steps that it reads, each with the index of the output."""


class RunRecord(msgspec.Struct, frozen=True, array_like=True):
    """A run: its process, host, start, and the graph of its program."""

    run: str
    at: int
    node: str = ""
    host: str = ""
    pid: int = 0
    version: str = ""
    n_shards: int = 0
    steps: tuple[StepRecord, ...] = ()
    ended: int | None = None
    """When it ended normally; None if it runs, has failed, or was killed."""


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
    """Whether the run continued from the last commit."""


class LagRecord(msgspec.Struct, frozen=True, array_like=True):
    """The latest backlog of a run's sources that differed from the one before.

    For an active run it is valid until the next one.
    """

    at: int
    run: str
    behind: dict[str, dict[str, Behind]] = {}
    """By source and partition, for sources that can report it."""


_Record = TypeVar("_Record", CommitRecord, RunRecord, ErrorRecord, LagRecord)


class Form(Generic[_Record]):
    """The encoding of records of one kind: a mark, then their array, compressed, with a checksum."""

    def __init__(self, kind: type[_Record]) -> None:
        """Use the type of the records."""
        self._encoder = msgspec.msgpack.Encoder()
        self._many: msgspec.msgpack.Decoder[list[msgspec.Raw]] = msgspec.msgpack.Decoder(list[msgspec.Raw])
        self._one: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(kind)
        self._all: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(list[kind])  # type: ignore[valid-type]

    def encode(self, records: list[_Record]) -> bytes:
        """Encode records as one object."""
        raw = self._encoder.encode(records)
        return _MAGIC + zstandard.ZstdCompressor(level=3, write_checksum=True).compress(raw)

    def decode(self, data: bytes) -> list[_Record]:
        """Decode the records of an object, without unreadable ones; raise `CorruptError` if none is readable."""
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
            pass  # Decode one by one, because some may be from another version.
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
