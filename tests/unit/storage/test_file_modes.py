"""The permissions of files in a local store."""

import os
import stat
from pathlib import Path

import pytest

from tidewheel._storage.file import FileStore
from tidewheel.cells import open as open_cells
from tidewheel.errors import StorageError


@pytest.fixture(autouse=True)
def usual_mask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in [root, *root.rglob("*")]}


def test_new_files_and_folders_are_for_their_user_alone(tmp_path):
    store = FileStore(str(tmp_path / "root"))
    store.create("job/created", b"1")
    store.write("job/written", b"2")
    assert modes(tmp_path / "root") == {"root": 0o700, "job": 0o700, "created": 0o600, "written": 0o600}


def test_a_store_in_a_folder_that_everybody_may_write_to_is_private(tmp_path):
    tmp_path.chmod(0o1777)
    FileStore(str(tmp_path / "root")).create("a", b"1")
    assert modes(tmp_path / "root") == {"root": 0o700, "a": 0o600}


def test_files_below_a_folder_that_its_group_may_write_to_are_for_the_group(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(0o2770)
    store = FileStore(str(root))
    store.create("job/created", b"1")
    store.write("job/written", b"2")
    assert modes(root) == {"root": 0o2770, "job": 0o2770, "created": 0o660, "written": 0o660}


def test_cells_in_a_folder_are_for_their_user_alone(tmp_path):
    with open_cells(f"file://{tmp_path}/cells") as connection:
        connection.writer("a", int).write(1)
    assert set(modes(tmp_path / "cells").values()) == {0o700, 0o600}


def test_a_range_far_past_the_end_allocates_nothing(tmp_path):
    store = FileStore(str(tmp_path))
    store.create("a", b"12345")
    with pytest.raises(StorageError, match="ends too early"):
        store.read_range("a", 2, 2**62)
    with pytest.raises(StorageError, match="ends too early"):
        store.read_range("a", 2**62, 5)
