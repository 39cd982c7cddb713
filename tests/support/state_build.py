"""The history of a shard for tests: state files in a folder, and the parts that a manifest would name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from support.internals import FileRef, PartRef, ShardParts
from tidewheel._state.compaction import merge, newest_sequence
from tidewheel._state.local_copies import ShardCopy, ShardReader
from tidewheel._state.references import Stretch
from tidewheel._state.state_file import StateFile, StateFileWriter

Tables = Mapping[str, Mapping[bytes, bytes | None]]
State = dict[str, dict[bytes, bytes]]


def state_file(name: str, shards: Mapping[int, Tables], block_bytes: int = 256) -> tuple[FileRef, bytes]:
    """Return the reference and the bytes of a file; small blocks, so that small tests have several."""
    writer = StateFileWriter(block_bytes)
    for shard, tables in shards.items():
        for table, items in tables.items():
            writer.add(shard, table, sorted(items.items()))
    data, checksum = writer.finish()
    return FileRef(name, len(data), checksum), data


class History:
    """The commits of one shard; what it should be is a plain dict."""

    def __init__(self, folder: Path, shard: int = 0, run: str = "run") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.shard, self.run = folder, shard, run
        self.parts = ShardParts()
        self.sequence = 0
        self.state: State = {}
        self.fetched: list[str] = []

    def commit(self, changes: Tables | None = None, snapshot: bool = False) -> None:
        """Make the next commit: a delta if there are changes, and perhaps a snapshot of the state before it."""
        self.sequence += 1
        taken = self._write("snapshot", self.state, newest_sequence(self.parts)) if snapshot else None
        deltas = [self._write("delta", changes, self.sequence)] if changes is not None else []
        self.parts = merge(self.parts, deltas, taken)
        for table, items in (changes or {}).items():
            state = self.state.setdefault(table, {})
            for key, value in items.items():
                if value is None:
                    state.pop(key, None)
                else:
                    state[key] = value

    def fetch(self, ref: FileRef) -> StateFile:
        self.fetched.append(ref.name)
        return StateFile.of((self.folder / ref.name).read_bytes(), ref)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        return (self.folder / name).read_bytes()[start : start + length]

    def expected(self) -> State:
        return {table: dict(items) for table, items in self.state.items() if items}

    def save(self) -> None:
        """Leave the parts where another process finds them."""
        (self.folder / "parts").write_bytes(msgspec.msgpack.encode((self.parts, self.sequence)))

    @classmethod
    def load(cls, folder: Path) -> History:
        history = cls(folder)
        data = (folder / "parts").read_bytes()
        history.parts, history.sequence = msgspec.msgpack.decode(data, type=tuple[ShardParts, int])
        return history

    def _write(self, kind: str, tables: Tables, sequence: int) -> PartRef:
        ref, data = state_file(f"{kind}-{self.sequence}", {self.shard: tables})
        (self.folder / ref.name).write_bytes(data)
        made = (Stretch(1 if kind == "snapshot" else sequence, sequence, self.run),)
        return PartRef(ref, sequence, len(data), sum(map(len, tables.values())), made=made)


def catch_up(copy: ShardCopy, history: History) -> None:
    copy.catch_up(history.parts, history.sequence, history.fetch, history.run)


def contents(reader: ShardReader) -> State:
    return {table: dict(reader.items(table)) for table in reader.tables()}
