"""A file source whose folder is not the one that the job has read."""

from __future__ import annotations

import pytest

from tidewheel import Job, RunOptions, sinks, sources
from tidewheel.checkpoints import CheckpointStore
from tidewheel.errors import StateError


@pytest.fixture
def run(tmp_path, spark):
    def run(folder, version: int = 1) -> int:
        job = Job("clicks", state=f"file://{tmp_path}/state", n_shards=2)
        users = job.source("in", sources.files(folder, "json", schema="user string"))
        counts = users.key_by("by-user", "user").stateful_map(
            "count",
            lambda user, row, seen: (seen[-1] + 1, [*seen, seen[-1] + 1]),
            default=lambda: [0],
            version=version,
            upgrade=None if version == 1 else lambda seen, was: [1000 + seen[-1]],
        )
        counts.sink("out", sinks.discard())
        options = RunOptions(spark=spark, local=str(tmp_path / "local"))
        return job.run(until="caught-up", options=options).event_count

    return run


def moved(tmp_path, run):
    """Run the job once, then rename its folder and add a file."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    (old / "1.json").write_text('{"user": "ada"}\n')
    assert run(old) == 1
    old.rename(new)
    (new / "2.json").write_text('{"user": "bob"}\n')
    return old, new


def test_a_moved_folder_is_refused_and_a_link_in_its_place_continues(tmp_path, run):
    old, new = moved(tmp_path, run)
    with pytest.raises(StateError, match=r"'in': it has read .*/old/1\.json.*--allow-dropped-source in"):
        run(new)
    old.symlink_to(new)
    assert run(old) == 2


def test_a_start_that_refuses_a_moved_folder_commits_nothing(tmp_path, run):
    _, new = moved(tmp_path, run)
    commits = CheckpointStore.open(f"file://{tmp_path}/state")
    before = commits.latest("clicks")
    with pytest.raises(StateError, match="it has read"):
        run(new, version=2)
    assert commits.latest("clicks") == before
