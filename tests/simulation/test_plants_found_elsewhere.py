"""Planted faults of files and processes, which the simulation does not have: each is found by a test of its own."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tidewheel._storage import file
from tidewheel.fleet._inbox import file as log_inbox
from tidewheel.fleet._inbox.file import FileInbox

TESTS = Path(__file__).parents[1]


def named(path: str, test: str):
    """Return a test function of another file."""
    spec = importlib.util.spec_from_file_location(f"planted_{Path(path).stem}", TESTS / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, test)


def test_a_lock_inherited_across_a_fork_is_found(tmp_path, monkeypatch):
    """Parent and child hold one `flock`, and would write at the same time."""
    test = named("unit/connectors/test_inbox_file.py", "test_an_inbox_opened_before_a_fork_is_refused_in_the_child")
    with FileInbox(str(tmp_path / "sound"), 4) as inbox:
        test(inbox)
    monkeypatch.setattr(FileInbox, "after_fork", lambda self: None)
    with FileInbox(str(tmp_path / "planted"), 4) as inbox, pytest.raises(AssertionError):
        test(inbox)


def test_a_name_whose_folder_is_not_synced_is_found(tmp_path, monkeypatch):
    """A power cut can lose an object that was acknowledged."""
    test = named("unit/storage/test_storage_file.py", "test_create_reaches_the_disk_before_it_returns")
    for name in ("sound", "planted"):
        (tmp_path / name).mkdir()
    with monkeypatch.context() as patch:
        test(tmp_path / "sound", patch)
    monkeypatch.setattr(file, "os", Unsynced())
    with pytest.raises(AssertionError):
        test(tmp_path / "planted", monkeypatch)


def test_an_entry_that_is_not_synced_is_found(tmp_path, monkeypatch):
    """An inbox that moves its end before the entry is on the disk."""
    test = named("unit/connectors/test_inbox_file.py", "test_a_disk_that_keeps_failing_makes_nothing_durable")
    with FileInbox(str(tmp_path / "sound"), 4) as inbox, monkeypatch.context() as patch:
        test(inbox, patch)
    monkeypatch.setattr(log_inbox, "os", Unsynced())
    with FileInbox(str(tmp_path / "planted"), 4) as inbox, pytest.raises(pytest.fail.Exception):
        test(inbox, monkeypatch)


class Unsynced:
    """Stands in for the module `os`: what is to reach the disk does not."""

    def __getattr__(self, name: str):
        return (lambda descriptor: None) if name in ("fsync", "fdatasync") else getattr(os, name)
