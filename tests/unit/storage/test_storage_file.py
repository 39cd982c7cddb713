from __future__ import annotations

import errno
import os
import stat
import threading

import pytest

from support.internals import open_store
from tidewheel._storage import file
from tidewheel.errors import ConfigError, NotFound, StorageError


def test_the_same_folder_by_each_spelling(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "x").write_bytes(b"1")
    for url in (
        f"file://{tmp_path}/a%20b",
        "file:a b",
        "a b",
        str(tmp_path / "a b"),
        f"file://localhost{tmp_path}/a b",
    ):
        assert open_store(url).read("x") == b"1", url


def test_a_host_in_a_file_url_is_an_error_that_shows_the_right_form():
    with pytest.raises(ConfigError, match="three slashes"):
        open_store("file://data/state")


@pytest.mark.parametrize("url", ["", "file:", "memory:"])
def test_a_url_that_names_no_place_is_refused(url):
    with pytest.raises(ConfigError, match="names no place"):
        open_store(url)


def test_an_unknown_scheme_is_refused_by_name():
    with pytest.raises(ConfigError, match="unknown scheme 'ftp'"):
        open_store("ftp://host/x")


def test_without_unnamed_files_create_goes_by_a_named_one(tmp_path, monkeypatch):
    monkeypatch.setattr(file, "_UNNAMED", None)
    store = open_store(str(tmp_path))
    assert store.create("a", b"one")
    assert not store.create("a", b"two")
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_system_that_refuses_unnamed_files_is_no_hindrance(tmp_path, monkeypatch):
    really_open = os.open

    def refusing(path, flags, *args, **kwargs):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no")
        return really_open(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refusing)
    assert open_store(str(tmp_path)).create("a", b"one")


def test_a_killed_writer_leaves_nothing_that_is_listed(tmp_path):
    store = open_store(str(tmp_path))
    (tmp_path / f"{file._TEMPORARY}1-2-3").write_bytes(b"half")
    store.write("a", b"1")
    assert [entry.path for entry in store.list()] == ["a"]


def test_a_failed_write_leaves_the_old_bytes_and_no_temporary_file(tmp_path, monkeypatch):
    store = open_store(str(tmp_path))
    store.write("a", b"old")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    for attempt in (store.write, store.create):
        with pytest.raises(
            StorageError, match=r"could not .* a at file://.*: No space left on device; the disk is full"
        ):
            attempt("a", b"new")
    assert store.read("a") == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_part_that_is_a_file_is_explained(tmp_path):
    store = open_store(str(tmp_path))
    store.write("a", b"1")
    with pytest.raises(StorageError, match="a file, not a folder"):
        store.write("a/b", b"2")
    with pytest.raises(StorageError, match="folder of that name"):
        open_store(str(tmp_path.parent)).read(tmp_path.name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
def test_an_unreadable_folder_is_explained(tmp_path):
    tmp_path.chmod(0)
    try:
        with pytest.raises(StorageError, match="this user may not"):
            open_store(str(tmp_path)).read("a")
    finally:
        tmp_path.chmod(stat.S_IRWXU)


def test_create_reaches_the_disk_before_it_returns(tmp_path, monkeypatch):
    """Bytes, then the name, then the folder: else a power cut can lose an acknowledged object."""
    steps = []
    for name in ("fdatasync", "link", "rename", "fsync"):
        real = getattr(os, name)

        def noted(*arguments, real=real, name=name, **options):
            # Other threads of this process may write files of their own.
            if threading.current_thread() is threading.main_thread():
                steps.append(name)
            return real(*arguments, **options)

        monkeypatch.setattr(os, name, noted)
    store = open_store(str(tmp_path))
    store.create("a", b"1")
    assert steps == ["fdatasync", "link", "fsync"]
    steps.clear()
    store.create("a", b"2")
    assert steps == ["fdatasync", "link", "fsync"], "the winner may not have reached its own fsync yet"
    steps.clear()
    store.write("a", b"2")
    assert steps == ["fdatasync", "rename", "fsync"]
    steps.clear()
    store.create("b/c/d", b"1")
    assert steps == ["fsync", "fsync", "fdatasync", "link", "fsync"], "new folders reach the disk too"


def test_an_object_deleted_while_create_compares_is_created_again(tmp_path, monkeypatch):
    store = open_store(str(tmp_path))
    store.create("a", b"old")
    real, calls = type(store).read, []

    def read_after_a_delete(self, path):
        calls.append(path)
        store.delete(path)
        return real(self, path)

    monkeypatch.setattr(type(store), "read", read_after_a_delete)
    assert store.create("a", b"new")
    assert calls == ["a"]
    monkeypatch.undo()
    assert store.read("a") == b"new"
    store.delete("a")
    with pytest.raises(NotFound):
        store.read("a")
