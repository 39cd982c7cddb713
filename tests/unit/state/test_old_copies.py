"""Unused local copies are deleted; those that may still be used remain."""

from __future__ import annotations

import os
from pathlib import Path

from tidewheel._state.local_copies import LocalCopies, folder_name
from tidewheel._state.old_copies import UNUSED_S, remove_old_copies

EARLIER = "00000000-1111-2222-3333-444444444444"
NOW = 2_000_000_000.0


def copies(local: Path, name: str, age: float = 0.0) -> Path:
    shard = local / name / "00000"
    shard.mkdir(parents=True)
    data = shard / "data.mdb"
    data.write_bytes(b"x")
    for path in (data, local / name):
        os.utime(path, (NOW - age, NOW - age))
    return local / name


def test_copies_of_an_earlier_boot_and_unused_lineages_are_removed(tmp_path):
    mine = copies(tmp_path, folder_name("job-1", "aa"), UNUSED_S * 2)
    rebooted = copies(tmp_path, f"job-1-aa-{EARLIER}")
    unused = copies(tmp_path, folder_name("job-1", "bb"), UNUSED_S + 1)
    used = copies(tmp_path, folder_name("job-1", "cc"), UNUSED_S - 1)
    others = [
        copies(tmp_path, name, UNUSED_S * 2) for name in ("job-1-notes", f"job-2-aa-{EARLIER}", f"job-aa-{EARLIER}")
    ]
    assert set(remove_old_copies(mine, NOW)) == {rebooted, unused}
    assert not rebooted.exists()
    assert not unused.exists()
    assert all(path.exists() for path in (mine, used, *others))


def test_a_job_whose_name_adds_a_hyphen_is_another_job(tmp_path):
    mine = copies(tmp_path, folder_name("job", "aa"))
    other = copies(tmp_path, f"job-b-aa-{EARLIER}")
    assert remove_old_copies(mine, NOW) == []
    assert other.exists()


def test_a_process_that_opens_its_copies_removes_the_old_ones(tmp_path):
    rebooted = copies(tmp_path, f"job-aa-{EARLIER}")
    opened = LocalCopies.at(tmp_path / folder_name("job", "bb"))
    try:
        assert not rebooted.exists()
    finally:
        opened.close()
