"""A sink gets another place or kind under its name while a commit still has output for the old one."""

from __future__ import annotations

import json
import logging
import shutil

import pytest

from support.internals import faults
from tidewheel import Job, StoredJob, sinks
from tidewheel._core.faults import InjectedFault
from tidewheel.errors import StateError
from tidewheel.testing import MemoryRun


@pytest.fixture(autouse=True)
def disarmed():
    yield
    faults.arm("")


def started(root, sink, **options) -> MemoryRun:
    job = Job("replaced", state=str(root / "state"), n_shards=2)
    job.source("in", lambda spark: None, type=dict).sink("out", sink)
    return MemoryRun(job, **options)


def run(root, sink, *numbers: int, **options) -> None:
    with started(root, sink, **options) as running:
        for number in numbers:
            running.batch({"in": [{"n": number}]})


def crash(root, sink, number: int) -> None:
    """Leave the output of a batch committed and not published."""
    faults.arm("commit.created=raise")
    with pytest.raises(InjectedFault):
        run(root, sink, number)
    faults.arm("")


def files(root, name: str):
    return sinks.files(root / name, format="json")


def output(root, name: str) -> list[int]:
    found = (root / name).glob("*.json")
    return sorted(json.loads(line)["n"] for file in found for line in file.read_text().splitlines())


@pytest.mark.parametrize(
    "other", [lambda root: files(root, "new"), lambda _: sinks.discard(), lambda _: sinks.collect()]
)
def test_unpublished_output_stays_for_the_place_that_it_was_staged_for(tmp_path, other):
    run(tmp_path, files(tmp_path, "old"), 1)
    crash(tmp_path, files(tmp_path, "old"), 2)
    with pytest.raises(
        StateError, match=rf"is for files in {tmp_path}/old, and the sink is .* now.*--drop-unpublished out"
    ):
        run(tmp_path, other(tmp_path), 3)
    run(tmp_path, files(tmp_path, "old"))
    assert output(tmp_path, "old") == [1, 2]
    run(tmp_path, other(tmp_path), 3)


def test_unpublished_output_can_be_dropped_with_a_notice(tmp_path):
    crash(tmp_path, files(tmp_path, "old"), 2)
    with started(tmp_path, files(tmp_path, "new"), drop_unpublished=["out"]) as running:
        running.batch({"in": [{"n": 3}]})
        assert running.run.notices == ["sink 'out': 1 row of sequence 2 are not published, as drop_unpublished says"]
    assert (output(tmp_path, "old"), output(tmp_path, "new")) == ([], [3])


def test_void_output_is_taken_back_from_each_place_that_has_it(tmp_path):
    run(tmp_path, files(tmp_path, "old"), 1, 2)
    run(tmp_path, files(tmp_path, "new"), 3)
    stored = StoredJob("replaced", state=str(tmp_path / "state"))
    stored.restore(2)
    with pytest.raises(StateError, match=rf"must be retracted from files in {tmp_path}/old. The sink is files in"):
        run(tmp_path, files(tmp_path, "new"), 4)
    with pytest.raises(StateError, match=rf"must be retracted from files in {tmp_path}/new. The sink is files in"):
        run(tmp_path, files(tmp_path, "old"), 4)
    run(tmp_path, files(tmp_path, "new"), 4, drop_unpublished=["out"])
    assert (output(tmp_path, "old"), output(tmp_path, "new")) == ([1, 2], [3, 4])


def test_a_start_reports_the_output_that_it_took_back(tmp_path, caplog):
    run(tmp_path, files(tmp_path, "out"), 1, 2, 3)
    StoredJob("replaced", state=str(tmp_path / "state")).restore(2)
    with caplog.at_level(logging.WARNING), started(tmp_path, files(tmp_path, "out")) as running:
        taken = f"sink 'out': took back 2 files of the commits 3 to 4 in {tmp_path}/out, because the job was restored"
        taken += " to checkpoint 2"
        assert running.run.notices == [taken]
    assert taken in caplog.text
    assert output(tmp_path, "out") == [1]


def test_state_older_than_the_output_is_refused_before_the_first_batch(tmp_path):
    """The state URL was put back from a backup. The numbers of the later output come again."""
    run(tmp_path, files(tmp_path, "out"), 1)
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    run(tmp_path, files(tmp_path, "out"), 2, 3)
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "backup", tmp_path / "state")
    newest = StoredJob("replaced", state=str(tmp_path / "state")).show().sequence
    with pytest.raises(
        StateError, match=rf"has output of commit 6 .* is 3.*checkpoints restore replaced {newest} --state"
    ):
        run(tmp_path, files(tmp_path, "out"), 4)
    stored = StoredJob("replaced", state=str(tmp_path / "state"))
    stored.restore(stored.show().sequence)
    run(tmp_path, files(tmp_path, "out"), 4, 5)
    assert output(tmp_path, "out") == [1, 4, 5]


def test_output_that_was_in_place_without_a_marker_is_taken_back_too(tmp_path):
    """The later future was killed while it published: the file is in place, and the marker is not."""
    run(tmp_path, files(tmp_path, "out"), 1)
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    faults.arm("files.placed=raise")
    with pytest.raises(InjectedFault):
        run(tmp_path, files(tmp_path, "out"), 2)
    faults.arm("")
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "backup", tmp_path / "state")
    with pytest.raises(StateError, match="has output of commit 5"):
        run(tmp_path, files(tmp_path, "out"), 4)
    stored = StoredJob("replaced", state=str(tmp_path / "state"))
    stored.restore(3)
    run(tmp_path, files(tmp_path, "out"), 4)
    assert output(tmp_path, "out") == [1, 4]
