"""Report: the result of a task for the driver. A commit is made of reports only."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tidewheel._observe.records import DeadLetter
from tidewheel._state.compaction import Merged
from tidewheel._state.references import PartRef


class Failure(msgspec.Struct, frozen=True):
    """A program error: the user's function or data is wrong, and a retry of the task would fail again."""

    text: str
    kind: str = "StepError"
    """The name of the error's class, one of `tidewheel.errors`."""
    traceback: str = ""
    """The traceback of the user's code; empty if none was involved."""


class Staged(msgspec.Struct, frozen=True):
    """The staged output of a task for one sink."""

    rows: int
    token: bytes | None


class Attempt(NamedTuple):
    """One attempt of a task: Spark may run a task several times, with different output."""

    level: int
    partition: int
    number: int
    """Different for every attempt of a run."""


class Visits(NamedTuple):
    """The condition of the local copies of the shards that tasks have opened."""

    shards: int = 0
    stale: int = 0
    """How many copies lacked more than the shard's newest commit: the host had no copy, or other hosts worked on the shard."""
    stale_bytes: int = 0
    """Bytes of state files that these copies took in."""


class Report(msgspec.Struct, frozen=True):
    """The results of one task of a batch."""

    level: int
    partition: int
    failure: Failure | None = None
    attempt: int = 0
    """The number of the attempt that reports."""
    consumed: tuple[Attempt, ...] = ()
    """The attempts whose blocks the task has processed."""
    deltas: dict[int, list[PartRef]] = {}
    """The state that the task changed, by shard; several parts where one file would be too large."""
    merged: dict[int, Merged] = {}
    """Results of background merges that the commit adopts; never in the report of a task."""
    outputs: dict[str, Staged] = {}
    counts: dict[str, int] = {}
    """Messages that reached each step."""
    sent: dict[int, int] = {}
    """Messages sent on each edge."""
    received: dict[int, int] = {}
    looked_through: int | None = None
    """How many records the task read, if each task reads the whole batch and keeps the records of its own keys."""
    kept: int = 0
    """How many of these records the task kept."""
    changed: dict[str, int] = {}
    """Keys of each table whose state changed."""
    rejected: int = 0
    timers: dict[str, dict[int, tuple[int, int]]] = {}
    """By table of timers and shard that the task read or changed: when the next timer is due, by event time and by wall clock."""
    key_kinds: dict[str, str] = {}
    """The type of the keys that each `key_by` gave, and of the numbers in tuples by their place, as `step/1`."""
    frontiers: dict[str, int | None] = {}
    """The inputs of the frontier that gave data, each with the latest epoch that follows from it."""
    emitted: dict[str, int] = {}
    """Messages that left each step."""
    busy: dict[str, float] = {}
    """Seconds that each step's own code took."""
    reading: float = 0.0
    """Seconds that the task waited for the rows of its sources."""
    dead: dict[str, int] = {}
    """Records of each step that went to the dead-letter sink."""
    letters: tuple[DeadLetter, ...] = ()
    """A few of these."""
    stored: dict[str, dict[int, tuple[int, int]]] = {}
    """Keys and bytes of each step by shard, as of the base: of shards that the task opened and whose turn it is."""
    grown: dict[str, dict[int, int]] = {}
    """By step and shard, how many more keys have state than as of the base."""
    caught_up: int = 0
    """Bytes of state files that local copies took in."""
    visits: Visits = Visits()
    began: int = 0
    """When the task began, in ns since 1970, by the clock of its host."""
    took: float = 0.0
    """How many seconds it took."""
    idle: float = 0.0
    """How many of these seconds the task waited for other tasks."""
    hot: dict[str, dict[str, float]] = {}
    """By `key_by`, its most frequent keys as Python shows them, each with about how many messages it has."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Report)


def encode(report: Report) -> bytes:
    """Return a report as bytes."""
    return _encoder.encode(report)


def decode(data: bytes) -> Report:
    """Return the report that `encode` gave."""
    return _decoder.decode(data)
