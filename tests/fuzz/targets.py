"""Everything that reads bytes which others may have written: how to read them, and examples from the real writers.

A target reads any bytes at all and raises nothing but errors of this package. What has a checksum gets the right one, so that
the bytes behind it are read.
"""

from __future__ import annotations

import functools
import json
import os
import struct
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
from xxhash import xxh64_intdigest

from support.internals import FileRef, from_stored, to_stored
from tidewheel import Job, StoredJob, codecs, sinks, sources
from tidewheel._cells import record as cell_record
from tidewheel._cells.credentials import Presented
from tidewheel._cells.declared import CheckedCodec
from tidewheel._cells.tickets.signed import TicketIssuer, TicketValidator
from tidewheel._checkpoint import encoding, pages, pins, seed_layout, spark_log
from tidewheel._checkpoint.envelope import seal, unseal
from tidewheel._checkpoint.manifest import SparkLog, SparkSource
from tidewheel._checkpoint.tools.savepoint import at_of
from tidewheel._checkpoint.tools.text import key_candidates, shown
from tidewheel._cli import cells as cells_cli
from tidewheel._codecs.decode_all import decode_all
from tidewheel._codecs.registry import Registry
from tidewheel._connectors.files.csv_fields import CsvForm
from tidewheel._connectors.files.csv_split import CsvSplit
from tidewheel._connectors.files.data_files import TaskFiles
from tidewheel._connectors.files.input_file import InputFile
from tidewheel._connectors.files.json_split import JsonSplit
from tidewheel._connectors.files.lines import Part
from tidewheel._connectors.files.reader import Taken
from tidewheel._connectors.files.text_split import TextSplit
from tidewheel._connectors.log_stream import positions_of as log_positions
from tidewheel._connectors.schema import declared_schema
from tidewheel._connectors.staging import StagedRef, read_token
from tidewheel._core.undecodable import UNDECODABLE
from tidewheel._core.urls import Url
from tidewheel._observe.records import COMMITS, ERRORS, LAG, RUNS
from tidewheel._state import tagged, timers
from tidewheel._state.codec import msgpack_codec
from tidewheel._state.state_file import StateFile, StateFileWriter
from tidewheel._time.duration import nanoseconds
from tidewheel.errors import ConfigError, NotFound, TidewheelError
from tidewheel.fleet._inbox import entry as inbox_entry
from tidewheel.fleet._inbox import offsets, open_inbox
from tidewheel.fleet._inbox.base import Block, Stored, decode_skipped
from tidewheel.fleet._inbox.events import decode_events, encode_events
from tidewheel.fleet._inbox.payloads import read_payloads, simple_schema
from tidewheel.testing import MemoryRun

_TRAILER = struct.Struct("<II8s")


@dataclass(frozen=True)
class Target:
    name: str
    read: Callable[[bytes], object]
    examples: Callable[[], Sequence[bytes]]
    errors: tuple[type[Exception], ...] = (TidewheelError,)
    """What reading may raise."""


TARGETS: dict[str, Target] = {}


def target(
    examples: Callable[[], Sequence[bytes]], *errors: type[Exception]
) -> Callable[[Callable[[bytes], object]], Callable[[bytes], object]]:
    """Register a reader under the name of its function; by default it raises errors of this package alone."""

    def add(read: Callable[[bytes], object]) -> Callable[[bytes], object]:
        name = read.__name__.replace("_", "-")
        TARGETS[name] = Target(name, read, functools.cache(examples), (TidewheelError, *errors))
        return read

    return add


# A folder in memory for what is read from files, and a store in which everything is.


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    shared = "/dev/shm"
    return tempfile.TemporaryDirectory(prefix="tidewheel-fuzz-", dir=shared if os.path.isdir(shared) else None)


def folder() -> Path:
    return Path(_temporary().name)


@functools.cache
def stored() -> dict[str, list[bytes]]:
    """Return the objects of a job with everything, by the end of their names."""
    state = folder() / "store"

    def total(key: str, row: dict[str, Any], n: int) -> tuple[dict[str, Any], int]:
        return {"k": key, "n": n + 1}, n + 1

    job = Job("j", state=f"file://{state}", n_shards=4)
    job.cell("limit", str, default="x")
    keyed = job.source("in", sources.iterable([]), type=dict).key_by("by", "k")
    keyed.stateful_map("count", total, default=0).sink("out", sinks.files(f"{folder()}/out", "json"))
    with MemoryRun(job) as run:
        run.batch({"in": [{"k": f"k{number}"} for number in range(20)]})
    made = StoredJob("j", state=f"file://{state}")
    made.savepoint("mine")
    made.fork("mine", "copy")
    made.cell("limit").write("v")
    found: dict[str, list[bytes]] = {}
    for path in sorted(path for path in state.rglob("*") if path.is_file()):
        data = path.read_bytes()
        kind = "sealed" if data[:5] == b"TIDEW" else "state" if data[-8:] == b"TWSTATE\n" else path.suffix
        found.setdefault(kind, []).append(data)
    return found


def _bodies(magic: bytes) -> Callable[[], Sequence[bytes]]:
    def bodies() -> Sequence[bytes]:
        sealed = [data for data in stored()["sealed"] if data.startswith(magic)]
        return [unseal(magic, 99, data, "it")[1] for data in sealed]

    return bodies


# What the state URL has.


@target(lambda: stored()["sealed"])
def envelope(data: bytes) -> None:
    unseal(encoding.MAGIC, encoding.VERSION, data, "it")


@target(_bodies(encoding.MAGIC))
def manifest(data: bytes) -> None:
    for version in (encoding.VERSION, encoding.OLDEST + len(data) % (encoding.VERSION - encoding.OLDEST + 1)):
        try:
            state = encoding.decode(seal(encoding.MAGIC, version, data), "j", load_page=_no_page)
        except TidewheelError:
            continue
        _read_all(state)


def _no_page(ref: FileRef) -> Any:
    raise NotFound(f"there is no page {ref.name}")


def _read_all(state: Any) -> None:
    """Read what a manifest decodes when it is asked for, and write it again."""
    try:
        dict(state.shards)
        encoding.encode(state)
    except TidewheelError:
        return


@target(lambda: [pages.encode_page({})])
def page(data: bytes) -> None:
    sealed = seal(pages.MAGIC, pages.VERSION, data)
    found = pages.StoredPage(sealed, FileRef("state/p", len(sealed), xxh64_intdigest(sealed)), "it")
    dict(found)


@target(_bodies(pins.MAGIC))
def pin(data: bytes) -> None:
    pins._decode(seal(pins.MAGIC, pins.VERSION, data), "it").state(_no_page)


@target(lambda: [seed_layout.to_seed(seed_layout.from_seed("s", struct.pack("<QQQII", 1, 2, 3, 0, 0)))])
def seed_bytes(data: bytes) -> None:
    seed_layout.from_seed("s", data)


@target(lambda: [b'3\t{"path": "file:/in/a", "timestamp": 17, "batchId": 2}'])
def spark_file_entry(data: bytes) -> None:
    spark_log.old_seen_file(data.decode(errors="surrogateescape"))


@target(lambda: [b'v1\n{"batchWatermarkMs":0}\n{"logOffset":1}', b'{"in":{"0":4}}'])
def spark_offsets(data: bytes) -> None:
    text = data.decode(errors="replace")
    lines = (SparkSource("in", "files", 0), SparkSource("more", "files", 1))
    log = SparkLog("q", {0: text}, {0: text}, {}, (), lines, 2)
    spark_log.old_positions(log)


@target(lambda: [_index(data) for data in stored()["state"]])
def state_file_index(data: bytes) -> None:
    """Of the first file: its blocks as they are, and another index."""
    whole = stored()["state"][0]
    blocks = whole[: -len(_index(whole)) - _TRAILER.size]
    _, version, magic = _TRAILER.unpack(whole[-_TRAILER.size :])
    _read_state_file(blocks, data, _TRAILER.pack(len(data), version, magic))


def _index(data: bytes) -> bytes:
    length, _, _ = _TRAILER.unpack(data[-_TRAILER.size :])
    return data[-_TRAILER.size - length : -_TRAILER.size]


@target(lambda: [msgspec.msgpack.encode((len(_block(data)), _block(data))) for data in stored()["state"]])
def state_file_block(data: bytes) -> None:
    """The length that the block states, and its bytes."""
    try:
        stated, block = msgspec.msgpack.decode(data, type=tuple[int, bytes])
    except msgspec.DecodeError:
        stated, block = len(data), data
    writer = StateFileWriter()
    writer.add(0, "count", [(b"sa", b"1")])
    made, _ = writer.finish()
    _, version, magic = _TRAILER.unpack(made[-_TRAILER.size :])
    tables, entries = msgspec.msgpack.decode(_index(made))
    (place, table, first, count, dropped, _, _, _, _) = entries[0]
    entry = [place, table, first, count, dropped, 0, len(block), stated, xxh64_intdigest(block)]
    index = msgspec.msgpack.encode([tables, [entry]])
    _read_state_file(block, index, _TRAILER.pack(len(index), version, magic))


def _block(data: bytes) -> bytes:
    entries = msgspec.msgpack.decode(_index(data))[1]
    return data[entries[0][5] : entries[0][5] + entries[0][6]]


def _read_state_file(blocks: bytes, index: bytes, trailer: bytes) -> None:
    data = blocks + index + trailer
    file = StateFile.of(data, FileRef("state/f", len(data), xxh64_intdigest(index + trailer)))
    for shard in file.shards()[:10]:
        for table in file.tables(shard):
            file.get(shard, table, b"sk1")
        list(file.items(shard))
    file.verify()


def _values() -> Sequence[bytes]:
    rich: list[Any] = [
        {"a": 1, "b": [1.5, None, True]},
        {("a", 1): {1, 2}, "t": datetime(2026, 1, 1, tzinfo=UTC)},
        (Decimal("1.5"), UUID(int=7), b"x", datetime(2026, 1, 1)),
        [1, 2, 3],
    ]
    return [msgspec.msgpack.encode(tagged.tagged(value)) for value in rich]


@target(_values)
def state_value(data: bytes) -> None:
    msgpack_codec().decode(data)


@dataclass
class Account:
    cents: int
    at: datetime | None = None
    names: list[str] | None = None
    rest: dict[str, tuple[int, ...]] | None = None


@target(lambda: [msgpack_codec(Account).encode(Account(3, datetime(2026, 1, 1, tzinfo=UTC), ["a"], {"x": (1, 2)}))])
def state_of_a_type(data: bytes) -> None:
    codec = msgpack_codec(Account)
    codec.decode(data)


@target(lambda: [to_stored(key) for key in ("ada", 7, b"x", ("a", 1, None), 1.5)])
def stored_key(data: bytes) -> None:
    shown(from_stored(data))


@target(lambda: [timers.encode(timers.Timer("ada", 3, "end")), timers.encode(timers.Timer(("a", 1), -3, "", "wall"))])
def timer(data: bytes) -> None:
    timers.decode(data)


@target(lambda: [form.encode([]) for form in (COMMITS, RUNS, ERRORS, LAG)])
def history(data: bytes) -> None:
    for form in (COMMITS, RUNS, ERRORS, LAG):
        try:
            form.decode(data)
        except TidewheelError:
            continue


@target(lambda: [msgspec.msgpack.encode(StagedRef("staged/00000000000000000001-r-0-0-out.json", 3, 5, 1))])
def token(data: bytes) -> None:
    for kind in (StagedRef, TaskFiles):
        try:
            read_token(data, kind, "out")
        except TidewheelError:
            continue


# Cells, tickets and positions.


@target(lambda: stored()[".rec"])
def cell(data: bytes) -> None:
    cell_record.decode(data, "it")


@target(lambda: [b'"int"', b'{"is":"list","of":"int"}', b'{"is":"record","name":"A","fields":[["x","int",true]]}'])
def described_cell_type(data: bytes) -> None:
    try:
        description = json.loads(data)
    except (ValueError, RecursionError):
        return
    CheckedCodec(description)


_KEY = b"a secret of at least thirty-two bytes"


@target(lambda: [TicketIssuer(_KEY, audience="cells").issue("ada", lifetime="1 hour").encode()])
def ticket(data: bytes) -> None:
    TicketValidator(_KEY, audience="cells")(Presented(data.decode(errors="replace"), b"proof", b"signed"))


@target(lambda: [b'{"aud":"cells","exp":1e99,"jti":"x","iat":0,"cnf":{"jwk":{"x":"AAAA"}}}'])
def claims(data: bytes) -> None:
    """A ticket with the right signature and any claims: whoever issues tickets may err too."""
    import jwt

    try:
        found = json.loads(data)
        made = jwt.encode(found, _KEY, algorithm="HS256")
    except Exception:
        return
    TicketValidator(_KEY, audience="cells", revoked={"y"})(Presented(made, b"proof", b"signed"))


@target(lambda: [b'{"0":7,"#id":"18446744073709551616"}', b'"-"', b"3", b'{"files":3,"not_before_ms":5}'])
def position(data: bytes) -> None:
    try:
        value = msgspec.json.decode(data)
    except UNDECODABLE:
        return
    for read in (log_positions, offsets.positions_of, offsets.identity_of, Taken.of):
        try:
            read(value)  # type: ignore[operator]
        except TidewheelError:
            continue


# Inboxes.


def _log() -> Sequence[bytes]:
    blocks = [Block(0, 1, 2, encode_events([b"sa", b"sb"], [b"1", b'{"x":2}']))]
    return [b"".join(map(bytes, inbox_entry.encode("p", "s", blocks, 1.0))), inbox_entry.encode_forget("p", 1.0)]


@target(_log)
def inbox_log(data: bytes) -> None:
    """Each entry with its right checksum, as far as there are whole ones."""
    view, at = memoryview(_with_checksums(data)), 0
    while (found := inbox_entry.find(view, at)) is not None and found.end > at:
        inbox_entry.is_whole(view, found)
        at = found.end


def _with_checksums(data: bytes) -> bytes:
    frame = struct.Struct("<IIQ")
    if len(data) < frame.size:
        return data
    length, zero, _ = frame.unpack_from(data)
    body = data[frame.size : frame.size + length]
    return frame.pack(length, zero, xxh64_intdigest(body)) + data[frame.size :]


@functools.cache
def _inbox() -> tuple[str, Path]:
    place = folder() / "inbox"
    with open_inbox(f"file://{place}", 4) as inbox:
        inbox.append("p", "s", [Block(0, 1, 1, encode_events([b"sk"], [b"1"]))])
    (log,) = place.rglob("*.log")
    return f"file://{place}", log


@target(_log)
def inbox_file(data: bytes) -> None:
    url, log = _inbox()
    log.write_bytes(_with_checksums(data))
    with open_inbox(url) as inbox:
        start = inbox.start()
        end = inbox.end(range(inbox.n_shards))
        for block in inbox.read(start, end):
            decode_events(block)


@target(lambda: [encode_events([b"sa", b"ib"], [b"1", b"{}"]), encode_events([b"sa"] * 50, [b"12345678" * 9] * 50)])
def inbox_block(data: bytes) -> None:
    decode_events(Stored(1, "p", Block(0, 1, 2, data)))


@target(lambda: [b'{"key":"a","amount":3}', b'{"key":"a","amount":3,"more":[[{}]]}', b'{"amount":1e400}'])
def inbox_payload(data: bytes) -> None:
    for payload in ("json", "plain"):
        read_payloads([data, b'{"key":"b"}'], simple_schema("key string, amount long"), payload)  # type: ignore[arg-type]


@target(lambda: [b"[[0,1,2]]"])
def inbox_skipped(data: bytes) -> None:
    decode_skipped(data, "it")


# Files and payloads of users.

_COLUMNS = "k string, n int, l long, f double, b boolean, d decimal(6,2), t timestamp, day date"
_NESTED = f"{_COLUMNS}, a array<int>, m map<string,double>, s struct<x: int, y: array<string>>"


def _file(name: str, data: bytes) -> Part:
    path = folder() / name
    path.write_bytes(data)
    return Part(InputFile(str(path), len(data), 1), 0, len(data))


def _read_split(split: Any) -> None:
    for batch in split.read():
        batch.validate(full=True)
        batch.to_pylist()


_LINES = b'k,n,l,f,b,d,t,day\nada,1,2,0.5,true,1.25,2026-01-01T00:00:00Z,2026-01-01\n"a ""b"", c",,,,,,,\n'


@target(lambda: [_LINES, _LINES.replace(b",", b"\t")])
def csv_file(data: bytes) -> None:
    columns = declared_schema(_COLUMNS)
    for form in (CsvForm(header=True), CsvForm(header=False, multi_line=True, escape="\\"), CsvForm(separator="\t")):
        try:
            _read_split(CsvSplit(_file("file.csv", data), columns, names=columns.names, form=form))
        except TidewheelError:
            continue


@target(lambda: [b'{"k":"ada","n":1,"d":1.25,"t":"2026-01-01T00:00:00Z","a":[1],"m":{"x":2},"s":{"x":1,"y":["z"]}}\n'])
def json_file(data: bytes) -> None:
    _read_split(JsonSplit(_file("file.json", data), declared_schema(_NESTED)))


@target(lambda: [b"one\ntwo\r\n\xff\n"])
def text_file(data: bytes) -> None:
    _read_split(TextSplit(_file("file.txt", data), declared_schema("value string")))


@target(lambda: [_compressed(name) for name in ("gz", "zst")])
def compressed_file(data: bytes) -> None:
    for name in ("file.json.gz", "file.json.zst", "file.json.bz2", "file.json.lz4"):
        try:
            part = _file(name, data)
            _read_split(JsonSplit(Part(part.file, 0, None), declared_schema(_COLUMNS)))  # type: ignore[arg-type]
        except TidewheelError:
            continue


def _compressed(name: str) -> bytes:
    import gzip

    import zstandard

    text = b'{"k":"ada","n":1}\n' * 20
    return gzip.compress(text) if name == "gz" else zstandard.compress(text)


@target(lambda: [b"key,cents\nada,3\n", b'{"key":"ada","cents":3,"at":"2026-01-01T00:00:00Z"}\n'])
def imported_text(data: bytes) -> None:
    for name in ("rows.csv", "rows.json"):
        path = folder() / name
        path.write_bytes(data)
        job = Job("imported", state=f"memory:fuzz-{name}-{next(_NUMBERS)}", n_shards=1)
        keyed = job.source("in", sources.iterable([]), type=dict).key_by("by", lambda row: row["k"])
        keyed.stateful_map("sum", lambda key, row, n: (None, n), state=Account, default=lambda: Account(0))
        try:
            job.import_state("sum", path, key_type=str)
        except TidewheelError:
            continue


_NUMBERS = iter(range(2**62))

_AVRO = {
    "type": "record",
    "name": "A",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "n", "type": ["null", "long"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "map", "type": {"type": "map", "values": "double"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
    ],
}


def _decoded(codec: Any, data: bytes) -> None:
    records, errors = decode_all(codec, [data])
    assert len(records) + len(errors) == 1


@target(lambda: [b"\x06ada\x02\x06\x02\x02a\x00\x02\x02x\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\x01\x10"])
def avro_payload(data: bytes) -> None:
    _decoded(codecs.avro(_AVRO), data)


@target(lambda: [b'{"cents":3,"at":"2026-01-01T00:00:00Z","names":["a"],"rest":{"x":[1]}}', b'{"cents":1e3}'])
def json_payload(data: bytes) -> None:
    _decoded(codecs.json(Account), data)
    _decoded(codecs.json(), data)


def _debezium() -> Sequence[bytes]:
    source = {"table": "t", "schema": "public", "ts_ms": 1, "lsn": 3, "snapshot": "false"}
    change = {"before": None, "after": {"id": 1}, "source": source, "op": "c", "ts_ms": 2}
    return [json.dumps(change).encode(), json.dumps({"schema": {}, "payload": change}).encode()]


@target(_debezium)
def debezium_payload(data: bytes) -> None:
    _decoded(codecs.debezium(), data)


@target(_debezium)
def debezium_message(data: bytes) -> None:
    codec = codecs.debezium()
    records, errors = decode_all(codec, [(data, *[data] * len(codec.message_columns))])
    assert len(records) + len(errors) == 1


@target(lambda: [b"\x00\x00\x00\x00\x07\x06ada", b"\x00\x00\x00\x00\x07"])
def registry_payload(data: bytes) -> None:
    """Of a registry that answers with the second half of the bytes."""
    middle = len(data) // 2
    registry = _Answers("http://127.0.0.1:9", data[middle:])
    for read in (
        lambda: registry._answer(200, data),
        lambda: registry._answer(404, data),
        lambda: registry._fetched(registry._answer(200, data)),
    ):
        try:
            read()
        except TidewheelError:
            continue
        except Exception as error:
            if type(error).__name__ != "_Refused":
                raise


class _Answers(Registry):
    def __init__(self, url: str, answer: bytes) -> None:
        object.__setattr__(self, "url", Url(url))
        object.__setattr__(self, "answer", answer)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._answer(200, self.answer)  # type: ignore[attr-defined]


# What users type.


@target(
    lambda: [
        b"nats://ada:secret@one:4222,two/orders?replicas=3",
        b"s3://bucket/x?endpoint=http://h:1",
        b"etcd://[::1]:1/x",
    ]
)
def url(data: bytes) -> None:
    text = data.decode(errors="replace")
    found = Url(text)
    str(found), found.has_login, found.scheme
    server = found.server(("nats", "etcd", "s3", "http", "https"), "a server", ("replicas", "ca", "endpoint"))
    for host in server.hosts:
        host.url("http", 1)


@target(lambda: [b"5 minutes", b"1.5 s", b"2 weeks", b"100 ns"])
def duration(data: bytes) -> None:
    nanoseconds(data.decode(errors="replace"), "it")


@target(lambda: [b"3", b'"3"', b'["a",1]', b'{"a":1}', b"null", b"12", b"\xc2\xb2"])
def typed_on_a_command_line(data: bytes) -> None:
    text = data.decode(errors="replace")
    at_of(text)
    for key in key_candidates(text):
        shown(key)
        try:
            to_stored(key)
        except TidewheelError:
            continue
    cells_cli._loaded(text)


__all__ = ["TARGETS", "ConfigError", "Target", "folder"]
