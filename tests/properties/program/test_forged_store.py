"""A forged state store has no effect beyond it: the tests change every string and number of every stored object.

After each change all readers read the store and the jobs start again. Nothing may be written outside of the jobs' folders,
nothing may connect to an address that the user did not give, and memory stays bounded.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import shutil
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from xxhash import xxh64_intdigest

from support.internals import FileRef, faults, open_store
from support.watch import Watch, forget_peak, in_time, peak
from tidewheel import Job, StoredJob, sinks, sources
from tidewheel._checkpoint.envelope import seal, unseal
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.tools.verify import verify
from tidewheel._state.state_file import StateFile
from tidewheel._ui.site import Site
from tidewheel._ui.views import checkpoints as checkpoint_views
from tidewheel._ui.views import jobs as job_views
from tidewheel.fleet._inbox import open_inbox
from tidewheel.fleet._inbox.base import Block
from tidewheel.fleet._inbox.events import decode_events, encode_events
from tidewheel.testing import MemoryRun

ROOM = 64 << 10
"""KiB."""
SLOWEST = 60
"""Seconds after which one trial hangs."""
SAMPLE = 120
PARTS = 16
"""Into how many tests the long test of all changes is divided, so that each takes about a minute."""
NUMBERS = [-1, 0, 2**31, 2**62, 2**63 - 1]

Path_ = tuple[int | str, ...]
Trial = tuple[Path, Path_, Any]
"""An object, the place of a string or number in it, and the value that it is changed to."""


# What is stored, as trees of lists, dicts and leaves; and back.


def _sealed(data: bytes) -> tuple[Any, Callable[[Any], bytes]]:
    magic = data[:8]
    version, body = unseal(magic, 99, data, "it")
    return msgspec.msgpack.decode(body), lambda tree: seal(magic, version, msgspec.msgpack.encode(tree))


def _json(data: bytes) -> tuple[Any, Callable[[Any], bytes]]:
    return json.loads(data), lambda tree: json.dumps(tree).encode()


def _cell(data: bytes) -> tuple[Any, Callable[[Any], bytes]]:
    return msgspec.msgpack.decode(data), msgspec.msgpack.encode


def _history(data: bytes) -> tuple[Any, Callable[[Any], bytes]]:
    body = zstandard.ZstdDecompressor().decompress(data[4:])
    return msgspec.msgpack.decode(
        body
    ), lambda tree: data[:4] + zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(tree))


def _state_file(data: bytes) -> tuple[Any, Callable[[Any], bytes]]:
    trailer = struct.Struct("<II8s")
    length, version, magic = trailer.unpack(data[-trailer.size :])
    blocks, index = data[: -trailer.size - length], data[-trailer.size - length : -trailer.size]

    def write(tree: Any) -> bytes:
        packed = msgspec.msgpack.encode(tree)
        return blocks + packed + trailer.pack(len(packed), version, magic)

    return msgspec.msgpack.decode(index), write


def _log(data: bytes) -> tuple[Any, Callable[[Any], bytes]]:
    """The headers of an inbox's entries, and their bodies as they are."""
    frame, at, headers, bodies = struct.Struct("<IIQ"), 0, [], []
    while at < len(data):
        length, _, _ = frame.unpack_from(data, at)
        header = msgspec.msgpack.decode(data[at + frame.size : at + frame.size + length])
        size = sum(part[3] for part in header[2])
        at += frame.size + length
        headers.append(header)
        bodies.append(data[at : at + size])
        at += size

    def write(tree: Any) -> bytes:
        out = b""
        for header, body in zip(tree, bodies, strict=True):
            packed = msgspec.msgpack.encode(header)
            out += frame.pack(len(packed), 0, xxh64_intdigest(packed)) + packed + body
        return out

    return headers, write


def codec_of(path: Path) -> Callable[[bytes], tuple[Any, Callable[[Any], bytes]]] | None:
    data = path.read_bytes()
    if data[:5] == b"TIDEW":
        return _sealed
    if data[:4] == b"TWH1":
        return _history
    if data[-8:] == b"TWSTATE\n":
        return _state_file
    if path.suffix in (".json", ".incoming"):
        return _json
    if path.suffix == ".log":
        return _log
    if path.suffix == ".rec" and data:
        return _cell
    return None


def leaves(tree: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Yield where every string and number of a tree stands; bytes that hold a tree are gone through too."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, (*path, key))
    elif isinstance(tree, list):
        for place, value in enumerate(tree):
            yield from leaves(value, (*path, place))
    elif isinstance(tree, bytes) and (inner := _inner(tree)) is not None:
        yield from leaves(inner, (*path, "msgpack"))
    elif isinstance(tree, str | int | float | bytes):
        yield path, tree


def _inner(data: bytes) -> Any:
    """Return the tree in a token or in a savepoint's copy of a manifest, None if the bytes are no such thing."""
    try:
        tree = _sealed(data)[0] if data[:5] == b"TIDEW" else msgspec.msgpack.decode(data)
    except Exception:
        return None
    return tree if isinstance(tree, list) else None


def with_leaf(tree: Any, path: Path_, value: Any) -> Any:
    """Return the tree with another value at a place."""
    if not path:
        return value
    step, *rest = path
    if step == "msgpack":
        inner = with_leaf(_inner(tree), tuple(rest), value)
        return _sealed(tree)[1](inner) if tree[:5] == b"TIDEW" else msgspec.msgpack.encode(inner)
    changed = dict(tree) if isinstance(tree, dict) else list(tree)
    changed[step] = with_leaf(tree[step], tuple(rest), value)
    return changed


# The store, and all who read it.


class Store:
    """Jobs with everything that is stored: checkpoints, pages, a savepoint, a fork, output, cells, an inbox."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.pristine = root / "inside", root / "pristine"
        self.state, self.inbox = f"file://{self.root}/state", f"file://{self.root}/inbox"
        # So that some parts of shards are in pages, as those of large jobs are.
        monkeypatch.setattr(StreamCheckpoints, "__init__", _with_pages(StreamCheckpoints.__init__))
        for name in ("j", "t"):
            with MemoryRun(self.job(name)) as run:
                run.batch({"in": [{"k": f"{name}{number}", "card": "4111"} for number in range(20)]})
        stored = StoredJob("j", state=self.state)
        stored.savepoint("mine")
        stored.fork("mine", "copy")
        stored.cell("limit").write("v")
        with MemoryRun(self.job("j")) as run:
            faults.arm("files.placed=raise")
            with pytest.raises(faults.InjectedFault):
                run.batch({"in": [{"k": "j3", "card": "5"}]})
        faults.arm("")
        with open_inbox(self.inbox, 4) as inbox:
            inbox.append("p", "s", [Block(0, 1, 1, encode_events([b"sk"], [b"1"]))])
            inbox.skip(0, 0, 1)
        shutil.copytree(self.root, self.pristine)

    def job(self, name: str) -> Job:
        job = Job(name, state=self.state, n_shards=4)
        job.cell("limit", str, default="x")
        keyed = job.source("in", sources.iterable([]), type=dict).key_by("by", "k")
        counted = keyed.stateful_map("count", lambda key, row, n: ({"k": key, "n": n + 1}, n + 1), default=0)
        counted.sink("out", sinks.files(str(self.root / "out"), "json"))
        return job

    def objects(self) -> list[Path]:
        """Return all that is read: of a chain, the newest record."""
        found = [path.relative_to(self.pristine) for path in sorted(self.pristine.rglob("*")) if path.is_file()]
        newest = {path.parent: path for path in found if path.suffix == ".rec"}
        return [
            path
            for path in found
            if path.parts[0] != "out"
            and (path.suffix != ".rec" or newest[path.parent] == path)
            and codec_of(self.pristine / path) is not None
        ]

    def put_back(self) -> None:
        # A thread of a run that has just ended may still delete files that nothing refers to.
        while self.root.exists():
            shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.pristine, self.root, dirs_exist_ok=True)

    def readers(self) -> list[Callable[[], Any]]:
        store = open_store(self.state)
        asked: list[Callable[[StoredJob], Any]] = [
            lambda job: list(job.scan("count")),
            lambda job: job.savepoints(),
            lambda job: job.cell("limit").close(),
        ]
        return [
            *(
                lambda ask=ask, name=name: ask(StoredJob(name, state=self.state))
                for ask in asked
                for name in ("j", "t")
            ),
            lambda: verify(store, StreamCheckpoints(store, "j")),
            self.page,
            *(lambda name=name: self.start(name) for name in ("j", "t")),
            self.read_inbox,
            self.read_state_files,
        ]

    def page(self) -> None:
        site = Site(self.state)
        try:
            job_views.jobs(site)
            for name in ("j", "t"):
                job_views.overview(site, name)
                checkpoint_views.checkpoints(site, name)
        finally:
            site.close()

    def start(self, name: str) -> None:
        with MemoryRun(self.job(name), take_over=True) as run:
            run.batch({"in": [{"k": f"{name}1", "card": "6"}]})

    def read_inbox(self) -> None:
        with open_inbox(self.inbox) as inbox:
            inbox.skipped()
            start = inbox.start()
            end = inbox.end(range(inbox.n_shards))
            for stored in inbox.read(start, end):
                decode_events(stored)
            list(inbox.sizes(start, end))

    def read_state_files(self) -> None:
        """Read state files with their forged indexes: a forger would change the manifest's checksums too."""
        for path in self.root.rglob("*.delta"):
            data = path.read_bytes()
            (length,) = struct.unpack("<I", data[-16:-12])
            ref = FileRef(f"state/{path.name}", len(data), xxh64_intdigest(data[-16 - length :]))
            file = StateFile.of(data, ref)
            file.verify()
            for shard in file.shards():
                file.tables(shard)
                file.get(shard, "count", b"sj1")


def _with_pages(make: Callable[..., None]) -> Callable[..., None]:
    return lambda *arguments, **options: make(*arguments, **{"inline_bytes": 100, **options})


# What must not happen.


class Stranger:
    """A server that nobody should speak with. It counts who does."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.visits = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.visits += 1
            connection.close()

    def close(self) -> None:
        self._listener.close()


def texts(stranger: Stranger, outside: Path) -> list[str]:
    up = "../" * 40 + str(outside).lstrip("/")
    return [
        f"{up}/evil",
        f"/{up}/evil",
        f"x/{up}/evil",
        f"{outside}/evil",
        f"file://{outside}/store",
        f"etcd://127.0.0.1:{stranger.port}/x",
        f"s3://evil/x?endpoint=http://127.0.0.1:{stranger.port}&retry_s=0.1&region=x",
        f"nats://127.0.0.1:{stranger.port}/x",
        "\x1b[2J\n\0",
        "",
    ]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory, where there is one: each of many trials makes dozens of files durable."""
    shared = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=shared if os.path.isdir(shared) else None) as folder:
        yield Path(folder)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with files of the user's own, which must stay as they are."""
    folder = tmp_path / "outside"
    (folder / "store" / "j").mkdir(parents=True)
    (folder / "evil").write_text("mine")
    return folder


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def try_some(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, choose: Callable[[list[Trial]], list[Trial]]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "user")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("ETCDCTL_USER", "ada:hunter2")
    store, stranger = Store(tmp_path, monkeypatch), Stranger()
    evil, before = texts(stranger, outside), contents(outside)
    trials: list[Trial] = []
    for path in store.objects():
        data = (store.pristine / path).read_bytes()
        codec = codec_of(store.pristine / path)
        assert codec is not None
        for place, leaf in leaves(codec(data)[0]):
            values = NUMBERS if isinstance(leaf, int | float) else evil
            trials += [(path, place, value) for value in values]
    kinds = {path.parts[-2] if path.suffix != ".json" else path.name for path, _, _ in trials}
    assert kinds >= {"chain", "state", "pins", "program.json", "inbox.json"}, kinds
    print(f"{len(trials)} changes")
    for each in store.readers():
        _attempt(each)
    store.put_back()
    gc.collect()
    forget_peak()
    normal = peak()
    with Watch(tmp_path / "inside") as watch:
        for path, place, value in choose(trials):
            target = store.root / path
            tree, write = codec_of(target)(target.read_bytes())  # type: ignore[misc]
            raw = value.encode() if isinstance(value, str) and isinstance(_at(tree, place), bytes) else value
            try:
                forged = write(with_leaf(tree, place, raw))
            except (OverflowError, UnicodeEncodeError):
                continue
            Watch._current = None
            target.write_bytes(forged)
            Watch._current = watch
            for each in store.readers():
                _attempt(each)
            assert not watch.found, (str(path), place, value, watch.found)
            assert not stranger.visits, (str(path), place, value)
            assert peak() - normal < ROOM, (str(path), place, value, peak() - normal)
            Watch._current = None
            store.put_back()
            Watch._current = watch
    stranger.close()
    assert contents(outside) == before


def _at(tree: Any, place: Path_) -> Any:
    for step in place:
        tree = _inner(tree) if step == "msgpack" else tree[step]
    return tree


def _attempt(reader: Callable[[], Any]) -> None:
    """Let a reader do its work; whatever it says of the store is fine, but that it does not come back."""
    with contextlib.suppress(Exception):
        in_time(reader, SLOWEST)


def test_a_forged_store_reaches_nothing_outside_of_itself(tmp_path, outside, monkeypatch):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    try_some(tmp_path, outside, monkeypatch, lambda trials: random.Random(seed).sample(trials, SAMPLE))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_forged_string_or_number_at_all_reaches_outside(tmp_path, outside, monkeypatch, part):
    try_some(tmp_path, outside, monkeypatch, lambda trials: trials[part::PARTS])
