"""Encode and decode checkpoints: deterministic, lossless, and rejected unless complete.

The body is msgpack without maps: every mapping is a list of pairs in ascending order of their names, so that equal
checkpoints give equal bytes and a duplicate name is detected. The parts of shards are in pages or patches, see
`tidewheel._checkpoint.pages`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, NoReturn, TypeVar

import msgspec

from tidewheel._checkpoint import format_5, format_6
from tidewheel._checkpoint.added_fields import with_added_fields
from tidewheel._checkpoint.envelope import seal, unseal
from tidewheel._checkpoint.fleet_ledger import FleetLedger, HeldShard, RevokedShard
from tidewheel._checkpoint.manifest import (
    CheckpointId,
    ForkOrigin,
    Kind,
    LayoutKind,
    Manifest,
    OperatorInfo,
    PinnedCell,
    PinnedTable,
    Position,
    SeenFile,
    Span,
    SparkLog,
    SparkSource,
    StagedOutput,
)
from tidewheel._checkpoint.pages import LoadPage
from tidewheel._checkpoint.shard_map import Group, ShardMap
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel._state.references import Count, FileName, FileRef, ShardParts
from tidewheel._time.frontier import Frontier
from tidewheel.errors import ConfigError, CorruptError, StateError

MAGIC = b"TIDEWCKP"
VERSION = 10
OLDEST = 4
"""The oldest version that can be read."""

_SMALL = 64 * 1024

_K = TypeVar("_K", int, str, tuple[str, str])
_V = TypeVar("_V")

# Names that become part of a path have a pattern, and numbers that become a size have a limit, so that somebody with
# write access to the store cannot reach beyond it. `\Z`, because `$` accepts a trailing line break.
_Token = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_.]*\Z", max_length=200)]
"""The token of a run, which `names` puts into file names."""
_Lineage = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_]*\Z", max_length=100)]
"""Part of the name of the folder for local copies."""
_SourceFile = Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{1,18}/[0-9]{1,18}\Z")]
"""A file of Spark's log of a source: the number of the log and of the batch."""
_Shards = Annotated[int, msgspec.Meta(ge=1, le=65_536)]
_Tasks = Annotated[int, msgspec.Meta(ge=0, le=65_536)]
_Count = Count
_File = tuple[FileName, _Count, _Count]
_Slot = tuple[_File | None, msgspec.Raw]
"""The page of a group of shards, and its patch."""
_Revoked = tuple[_Token, int, int, ShardParts]
"""Run, term, position, state."""


class _Spark(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    query: str
    offsets: list[tuple[int, str]]
    commits: list[tuple[int, str]]
    files: list[tuple[_SourceFile, str]]
    seen: tuple[str, ...]
    sources: tuple[SparkSource, ...]
    logs: _Count


class _Fleet(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    held: list[tuple[_Count, HeldShard]]
    revoked: list[tuple[_Count, _Revoked]]
    terms: list[tuple[_Count, int]]
    closed_by: _Token | None


class _Sink(msgspec.Struct, array_like=True, forbid_unknown_fields=True, order=True):
    name: str
    newest: _Count
    place: str = ""
    """Not recorded by earlier versions."""


class _Body(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The encoded body. No field has a default: a body that lacks a field is rejected."""

    stream_id: str
    sequence: int
    created_at: int
    kind: Kind
    run: _Token
    host: str
    batch: int | None
    event_count: int
    epoch: int | None
    carried_epoch: int | None
    delivered_epoch: int | None
    behind: list[tuple[_Count, int | None]]
    source_offsets: list[tuple[str, Position]]
    source_kinds: list[tuple[str, str]]
    operator_states: list[tuple[str, bytes]]
    metadata: list[tuple[str, str]]
    n_shards: _Shards
    parallelism: _Tasks
    now: int
    operators: list[tuple[str, OperatorInfo]]
    former_operators: list[tuple[_Count, list[tuple[str, OperatorInfo]]]]
    key_kinds: list[tuple[str, str]]
    shards: list[_Slot]
    driver: ShardParts
    seen: tuple[SeenFile, ...]
    outputs: tuple[StagedOutput, ...]
    outputs_of: int | None
    published: int
    retract: Span | None
    retracted: tuple[Span, ...]
    sinks: list[_Sink]
    cells: list[tuple[str, PinnedCell]]
    frontiers: list[tuple[str, Frontier]]
    counts: list[tuple[str, int]]
    spark: _Spark | None
    lineage: _Lineage
    parent: int | None
    flushed: int | None
    forked_from: ForkOrigin | None
    unused_1: list[msgspec.Raw]
    """Earlier versions recorded moves of keys between jobs in this field and the next. They are read and ignored."""
    unused_2: list[msgspec.Raw]
    fleet: _Fleet | None
    tables: list[tuple[str, PinnedTable]]
    layout: LayoutKind
    source_starts: list[tuple[str, Position]]


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder(_Body).decode


def encode(state: Manifest) -> bytes:
    """Encode a checkpoint. Raises `StateError` for values that cannot be stored."""
    try:
        return seal(MAGIC, VERSION, _encode(_body(state)))
    except (TypeError, OverflowError, UnicodeEncodeError) as error:
        raise StateError(
            f"checkpoint {state.id.sequence} of stream {state.id.stream_id!r} cannot be written: {error}; "
            "numbers must fit in 64 bits, texts be valid Unicode, and values have the declared types"
        ) from None


def decode(data: bytes, stream_id: str | None = None, where: str = "", load_page: LoadPage | None = None) -> Manifest:
    """Decode a checkpoint completely, or raise. `load_page` reads its pages when they are needed.

    Raises `CorruptError` if the bytes are not a complete, undamaged checkpoint, and `StateError` for another format
    version or a checkpoint of another stream than `stream_id`. The errors include `where`, a path or URL.
    """
    what = f"checkpoint {where}" if where else "checkpoint"
    version, body = unseal(MAGIC, VERSION, data, what)
    if version < OLDEST:
        raise StateError(
            f"{what}: it has format version {version}, and this Tidewheel reads versions {OLDEST} to {VERSION}; commit "
            "once with the newest 0.1, which converts it, or start the job again under another name or state URL"
        )
    try:
        state = _Reading(what, load_page).state(_decode(_upgraded(body, version)))
    except (ConfigError, *UNDECODABLE) as error:
        # The checksum is right, so another program or a defect wrote these bytes.
        raise CorruptError(f"{what}: its body does not decode ({error}); it was not written by this format") from None
    if stream_id is not None and state.id.stream_id != stream_id:
        raise StateError(
            f"{what}: it is of stream {state.id.stream_id!r}, not of {stream_id!r}; "
            "look for it under its own stream's name"
        )
    return state


def _upgraded(body: bytes, version: int) -> bytes:
    """Convert a body of an earlier format to the current one; raise `msgspec.DecodeError` if it is invalid."""
    if version <= 4:
        body = with_added_fields(body, 4)
    if version <= 5:
        body = format_5.upgraded(body)
    if version <= 6:
        body = format_6.upgraded(body)
    if version <= 7:
        body = with_added_fields(body, 7)
    return with_added_fields(body, 9) if version <= 9 else body


def _body(state: Manifest) -> _Body:
    return _Body(
        stream_id=state.id.stream_id,
        sequence=state.id.sequence,
        created_at=state.id.created_at,
        kind=state.kind,
        run=state.run,
        host=state.host,
        batch=state.batch,
        event_count=state.event_count,
        epoch=state.epoch,
        carried_epoch=state.carried_epoch,
        delivered_epoch=state.delivered_epoch,
        behind=_pairs(state.behind),
        source_offsets=_pairs(state.source_offsets),
        source_kinds=_pairs(state.source_kinds),
        operator_states=_pairs(state.operator_states),
        metadata=_pairs(state.metadata),
        n_shards=state.n_shards,
        parallelism=state.parallelism,
        now=state.now,
        operators=_pairs(state.operators),
        former_operators=[(shard, _pairs(infos)) for shard, infos in _pairs(state.former_operators)],
        key_kinds=_pairs(state.key_kinds),
        shards=[_slot(group) for group in ShardMap.of(state.shards, state.n_shards).groups],
        driver=state.driver,
        seen=state.seen,
        outputs=state.outputs,
        outputs_of=state.outputs_of,
        published=state.published,
        retract=state.retract,
        retracted=state.retracted,
        sinks=[_Sink(name, newest, place) for (name, place), newest in sorted(state.sinks.items())],
        cells=_pairs(state.cells),
        frontiers=_pairs(state.frontiers),
        counts=_pairs(state.counts),
        spark=None if state.spark is None else _spark(state.spark),
        lineage=state.lineage,
        parent=state.parent,
        flushed=state.flushed,
        forked_from=state.forked_from,
        unused_1=[],
        unused_2=[],
        fleet=None if state.fleet is None else _fleet(state.fleet),
        tables=_pairs(state.tables),
        layout=state.layout,
        source_starts=_pairs(state.source_starts),
    )


def _slot(group: Group) -> _Slot:
    page, patch = group.page, group.patch
    return (
        None if page is None else (page.name, page.size, page.checksum),
        patch if isinstance(patch, msgspec.Raw) else msgspec.Raw(patch),
    )


def _spark(log: SparkLog) -> _Spark:
    offsets, commits, files = _pairs(log.offsets), _pairs(log.commits), _pairs(log.files)
    return _Spark(log.query, offsets, commits, files, log.seen, log.sources, log.logs)


def _fleet(ledger: FleetLedger) -> _Fleet:
    revoked = [(shard, (taken.to, taken.term, taken.position, taken.parts)) for shard, taken in _pairs(ledger.revoked)]
    return _Fleet(_pairs(ledger.held), revoked, _pairs(ledger.terms), ledger.closed_by)


class _Reading:
    """Builds the checkpoint from a decoded body, with the checks that the types do not cover."""

    def __init__(self, what: str, load_page: LoadPage | None) -> None:
        self._subject, self._load_page = what, load_page

    def state(self, body: _Body) -> Manifest:
        named = self._named
        return Manifest(
            id=CheckpointId(body.stream_id, body.sequence, body.created_at),
            kind=body.kind,
            run=body.run,
            host=body.host,
            batch=body.batch,
            event_count=body.event_count,
            epoch=body.epoch,
            carried_epoch=body.carried_epoch,
            delivered_epoch=body.delivered_epoch,
            behind=named("behind", body.behind),
            source_offsets=named("source_offsets", body.source_offsets),
            source_kinds=named("source_kinds", body.source_kinds),
            operator_states=named("operator_states", body.operator_states),
            metadata=named("metadata", body.metadata),
            n_shards=body.n_shards,
            parallelism=body.parallelism,
            now=body.now,
            operators=named("operators", body.operators),
            former_operators=named(
                "former_operators", body.former_operators, lambda infos: named("former_operators", infos)
            ),
            key_kinds=named("key_kinds", body.key_kinds),
            shards=self._slots(body.shards),
            driver=body.driver,
            seen=body.seen,
            outputs=body.outputs,
            outputs_of=body.outputs_of,
            published=body.published,
            retract=body.retract,
            retracted=body.retracted,
            sinks=named("sinks", [((sink.name, sink.place), sink.newest) for sink in body.sinks]),
            cells=named("cells", body.cells),
            frontiers=named("frontiers", body.frontiers),
            counts=named("counts", body.counts),
            spark=None if body.spark is None else self._spark(body.spark),
            lineage=body.lineage,
            parent=body.parent,
            flushed=body.flushed,
            forked_from=body.forked_from,
            fleet=None if body.fleet is None else self._fleet(body.fleet),
            tables=named("tables", body.tables),
            layout=body.layout,
            source_starts=named("source_starts", body.source_starts),
        )

    def _named(
        self, field: str, pairs: Sequence[tuple[_K, Any]], make: Callable[[Any], Any] | None = None
    ) -> dict[_K, Any]:
        mapping = dict(pairs) if make is None else {name: make(value) for name, value in pairs}
        if len(mapping) != len(pairs):
            self._refuse(f"{field}: the name {_twice(pairs)!r} is there twice")
        return mapping

    def _spark(self, log: _Spark) -> SparkLog:
        return SparkLog(
            log.query,
            self._named("spark.offsets", log.offsets),
            self._named("spark.commits", log.commits),
            self._named("spark.files", log.files),
            log.seen,
            log.sources,
            log.logs,
        )

    def _fleet(self, ledger: _Fleet) -> FleetLedger:
        return FleetLedger(
            self._named("fleet.held", ledger.held),
            self._named("fleet.revoked", ledger.revoked, lambda taken: RevokedShard(*taken)),
            self._named("fleet.terms", ledger.terms),
            ledger.closed_by,
        )

    def _slots(self, slots: list[_Slot]) -> ShardMap:
        if not slots:
            self._refuse("shards: there is no group of them")
        groups = [
            Group.stored(None if page is None else FileRef(*page), patch, self._load_page, place, len(slots))
            for place, (page, patch) in enumerate(slots)
        ]
        if not any(group.page for group in groups) and sum(len(patch) for _, patch in slots) <= _SMALL:
            # Small data is checked completely now. Large data is checked group by group, when it is read.
            for group in groups:
                for shard, change in group.changes().items():
                    if change.kept >= 0 or change.parts is None:
                        self._refuse(f"shards: {shard} continues from a page that does not exist")
        return ShardMap(groups)

    def _refuse(self, why: str) -> NoReturn:
        raise CorruptError(f"{self._subject}: {why}; it was not written by this format")


def _pairs(mapping: Mapping[_K, _V]) -> list[tuple[_K, _V]]:
    # Sort by name only: names are unique, and values need not be comparable.
    return sorted(mapping.items(), key=lambda pair: pair[0])


def _twice(rows: Iterable[tuple[Any, ...]]) -> Any:
    """Return the first duplicate name; the name is the first item of a row."""
    seen = set()
    for name, *_ in rows:
        if name in seen:
            break
        seen.add(name)
    return name
