"""A file source whose folder has changed."""

from __future__ import annotations

import pytest

from tidewheel import Job, RunOptions, sinks, sources
from tidewheel._checkpoint.manifest import SeenFile
from tidewheel._spark.source_folders import check_folders
from tidewheel.errors import StateError


def seen(*paths: str, source: str = "clicks") -> list[SeenFile]:
    return [SeenFile(source, f"0:{path}", number, 1, 0) for number, path in enumerate(paths)]


def check(folder: str, *paths: str) -> None:
    check_folders(seen(*paths), {"clicks": folder})


def test_the_same_folder_is_told_by_the_file_that_was_seen_last():
    check("/data/in", "file:///data/in/a.json")
    check("/data/in/", "file:///data/in/day=1/a%20b.json")
    check("file:///data/in", "file:///elsewhere/a.json", "file:///data/in/b.json")
    check("/data/a.json", "file:///data/a.json")
    check("/", "file:///data/a.json")
    check("/data/in")


def test_what_cannot_be_told_is_passed_over():
    check("/data/*/in", "file:///data/1/in/a.json")
    check("s3a://bucket/in", "s3a://bucket/other/a.json")
    check_folders(seen("file:///data/a.json"), {"other": "/in"})
    check_folders(seen("file:///data/a.json", source="users"), {"clicks": "/in"})


def test_another_folder_is_refused():
    for folder in ("/data/inner", "/data/i", "/new"):
        with pytest.raises(StateError, match=r"source 'clicks' has read /data/in/a b\.json"):
            check(folder, "file:///data/in/a%20b.json")


def test_a_job_whose_folder_was_moved_says_so_and_goes_on_where_a_link_is_left(tmp_path, spark):
    def run(folder) -> int:
        job = Job("clicks", state=f"file://{tmp_path}/state", n_shards=2)
        job.source("in", sources.files(folder, "json", schema="user string")).sink("out", sinks.discard())
        return job.run(until="caught-up", options=RunOptions(spark=spark, local=str(tmp_path / "local"))).event_count

    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    (old / "1.json").write_text('{"user": "ada"}\n')
    assert run(old) == 1
    old.rename(new)
    (new / "2.json").write_text('{"user": "bob"}\n')
    with pytest.raises(StateError, match="--allow-dropped-source in"):
        run(new)
    old.symlink_to(new)
    assert run(old) == 2
