"""The state URL is restored from a backup while runs, copies and readers remember later commits."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tidewheel import Job, StoredJob, sinks
from tidewheel._state.local_copies import LocalCopies
from tidewheel.errors import FencedError, NotFound, StateError
from tidewheel.testing import MemoryRun


class Machine:
    """Runs a job in memory, with local copies in LMDB in a folder of its own."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.local = root, str(root / name)

    def start(self, **options) -> MemoryRun:
        job = Job("put-back", state=str(self.root / "state"), n_shards=1)
        stream = job.source("in", lambda spark: None, type=dict).key_by("by", "k", value="n")
        stream.stateful_map("sum", lambda key, n, total: (total + n, total + n), default=0).sink("out", sinks.discard())
        run = MemoryRun(job, **options)
        run._local = self.local
        return run

    def run(self, *keys: str) -> None:
        with self.start() as run:
            for key in keys:
                run.batch({"in": [{"k": key, "n": 1}]})
        for copies in [each for folder, each in LocalCopies._open.items() if folder.startswith(self.local)]:
            copies.close()


def back_up(root: Path) -> None:
    shutil.copytree(root / "state", root / "backup")


def put_back(root: Path) -> None:
    shutil.rmtree(root / "state")
    shutil.copytree(root / "backup", root / "state")


def state(root: Path) -> dict[str, int]:
    return dict(StoredJob("put-back", state=str(root / "state")).scan("sum"))


@pytest.mark.parametrize("commits", [0, 1, 2, 4, 7, 12, 20])
def test_a_local_copy_of_an_abandoned_future_is_not_used(tmp_path, commits):
    """After some commits, merged parts of the new future cover the numbers of the abandoned one."""
    here, there = Machine(tmp_path, "here"), Machine(tmp_path, "there")
    here.run("ada", "bob")
    back_up(tmp_path)
    here.run("ghost", "ghost", "other")
    put_back(tmp_path)
    if commits:
        there.run(*(f"filler-{number}" for number in range(commits)))
    here.run("ghost", "ada")
    fillers = {f"filler-{number}": 1 for number in range(commits)}
    assert state(tmp_path) == {"ada": 2, "bob": 1, "ghost": 1, **fillers}


def test_an_equal_delta_of_an_abandoned_future_does_not_make_a_copy_valid(tmp_path):
    """Both futures end with a delta of the same content under the same number; what is below it differs."""
    here, there = Machine(tmp_path, "here"), Machine(tmp_path, "there")
    here.run("ada")
    back_up(tmp_path)
    here.run("ghost", "same", "next")
    put_back(tmp_path)
    there.run("other", "same")
    here.run("ghost")
    assert state(tmp_path) == {"ada": 1, "other": 1, "same": 1, "ghost": 1}


def test_a_run_under_which_the_state_was_put_back_commits_nothing_more(tmp_path):
    here = Machine(tmp_path, "here")
    here.run("ada")
    with here.start() as run:
        run.batch({"in": [{"k": "bob", "n": 1}]})
        back_up(tmp_path)
        run.batch({"in": [{"k": "ghost", "n": 1}]})
        put_back(tmp_path)
        with pytest.raises((FencedError, NotFound)):
            run.batch({"in": [{"k": "ghost", "n": 1}]})
        with pytest.raises(StateError, match="was restored from a backup while this run was running"):
            run.run.recall()
    assert state(tmp_path) == {"ada": 1, "bob": 1}
    # The backup has the lease of the run as it was.
    with Machine(tmp_path, "there").start(take_over=True) as run:
        run.batch({"in": [{"k": "bob", "n": 1}]})
    assert state(tmp_path) == {"ada": 1, "bob": 2}


def test_a_reader_notices_that_the_newest_checkpoint_has_other_content(tmp_path):
    here = Machine(tmp_path, "here")
    here.run("ada")
    back_up(tmp_path)
    here.run("ghost")
    stored = StoredJob("put-back", state=str(tmp_path / "state"))
    newest = stored.show().sequence
    put_back(tmp_path)
    here.run("bob")
    assert stored.show().sequence == newest
    assert dict(stored.scan("sum")) == {"ada": 1, "bob": 1}
