"""What a file source has not read: the files of its folder that the job has not seen."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import pytest

from tidewheel import sources
from tidewheel._checkpoint.manifest import CheckpointId, Manifest, SeenFile
from tidewheel._connectors.files import waiting
from tidewheel._engine import seen_files
from tidewheel._engine.seen_files import SeenFiles
from tidewheel._spark.unread_files import UnreadFiles
from tidewheel._storage import open_store

_NOW_MS = 1_700_000_000_000


def seen_file(path: Path, at: int = _NOW_MS, source: str = "events") -> SeenFile:
    return SeenFile(source, f"0:file://{quote(str(path))}", 0, at, 0)


class Folder:
    def __init__(self, root: Path) -> None:
        self.files = root / "in"
        self.files.mkdir()
        self.seen = SeenFiles(open_store(f"file://{root}/state"), "job", "run")
        self.head = Manifest(CheckpointId("job", 1), source_offsets={"events": 1})
        self.unread = UnreadFiles(self.seen, lambda: self.head)

    def put(self, name: str, at: int = _NOW_MS) -> Path:
        path = self.files / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("1")
        os.utime(path, (at / 1000, at / 1000))
        return path

    def commit(self, *files: SeenFile) -> None:
        inline, parts = self.seen.record(self.head, list(files), self.head.sequence + 1, ["events"])
        self.head = self.head.replace(id=CheckpointId("job", self.head.sequence + 1), seen=inline, driver=parts)

    def files_behind(self, **options) -> int | None:
        source = sources.files(str(self.files), "text", **options)
        told = self.unread.of("events", source)
        return told["folder"].files if told else None


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def test_files_that_were_not_seen_wait(folder):
    read, waits = folder.put("a b.txt"), folder.put("day=1/b.txt")
    folder.put("_hidden")
    folder.put(".hidden")
    folder.commit(seen_file(read))
    told = folder.unread.of("events", sources.files(f"{folder.files}/", "text"))["folder"]
    assert (told.files, told.since) == (1, waits.stat().st_ctime)
    folder.commit(seen_file(waits))
    assert folder.files_behind() == 0


def test_what_went_into_state_files_was_seen_too(folder, monkeypatch):
    monkeypatch.setattr(seen_files, "INLINE", 2)
    for number in range(10):
        folder.commit(seen_file(folder.put(f"{number}.txt")))
    assert folder.head.driver.deltas
    folder.put("new.txt")
    assert folder.files_behind() == 1
    assert folder.files_behind() == 1, "what was read of the state is remembered"


def test_files_of_another_source_are_not_counted_as_seen(folder):
    folder.commit(seen_file(folder.put("a.txt"), source="users"))
    assert folder.files_behind() == 1


def test_files_that_are_too_old_to_be_read_do_not_wait(folder):
    folder.commit(seen_file(folder.put("new.txt")))
    folder.put("old.txt", at=_NOW_MS - 8 * 24 * 3600 * 1000)
    assert folder.files_behind() == 0
    assert folder.files_behind(maxFileAge="30d") == 1


def test_what_cannot_be_told_is_not(folder, monkeypatch):
    for name in ("a.txt", "b.txt", "c.txt"):
        folder.put(name)
    assert folder.files_behind() == 3
    assert folder.files_behind(pathGlobFilter="*.csv") is None
    for url in ("s3://bucket/in", str(folder.files / "gone"), str(folder.files / "*.txt")):
        assert folder.unread.of("events", sources.files(url, "text")) == {}
    assert folder.unread.of("another", sources.files(str(folder.files), "text")) == {}
    assert folder.unread.of("events", sources.iterable([1])) is None
    monkeypatch.setattr(waiting, "MOST", 2)
    assert folder.files_behind() is None


def test_files_in_the_order_of_their_names_wait_behind_the_last_one(folder):
    for name in ("a", "b", "c", "_d"):
        folder.put(name)
    source = sources.files(str(folder.files), "text", ordered=True)
    assert source.unread('{"file": "a", "read": 1}')["folder"].files == 2
    assert source.unread('{"file": "c", "read": 3}')["folder"].files == 0
