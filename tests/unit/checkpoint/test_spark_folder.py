"""The logs of a Spark checkpoint folder show how far the query had read at its last committed batch."""

from __future__ import annotations

import json

import pytest

from tidewheel._checkpoint.spark_folder import newest_batches, spark_folder
from tidewheel.errors import StateError

ABOUT = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 17, "conf": {}})


def entry(path: str, batch: int) -> str:
    return json.dumps({"path": path, "timestamp": 10 + batch, "batchId": batch})


def log(*entries: str) -> str:
    return "\n".join(["v1", *entries])


def folder(offsets: list[str], logs: dict[int, dict[str, str]] | None = None):
    return spark_folder(3, None, "\n".join(["v1", ABOUT, *offsets]), logs or {}, "here")


def test_a_batch_that_was_begun_is_not_the_committed_one():
    assert newest_batches(["1", "2", "3"], ["1", "2"], "here") == (2, 3)
    assert newest_batches(["9", "10"], ["9", "10"], "here") == (10, None)


def test_a_folder_without_commits_is_refused():
    with pytest.raises(StateError, match=r"here has no committed batch .* checkpointLocation"):
        newest_batches(["0"], [], "here")


def test_files_of_a_batch_that_was_not_committed_are_not_seen():
    files = {"0": log(entry("file:/in/a", 0)), "1": log(entry("file:/in/b", 1)), "2": log(entry("file:/in/c", 2))}
    found = folder(['{"logOffset":1}'], {0: files})
    assert [file.path for file in found.seen] == ["file:/in/a", "file:/in/b"]
    assert found.kind(0) == "files"


def test_a_compacted_log_replaces_all_files_before_it():
    files = {
        "1": log(entry("file:/in/b", 1)),
        "1.compact": log(entry("file:/in/a", 0), entry("file:/in/b", 1)),
        "2": log(entry("file:/in/c", 2)),
    }
    found = folder(['{"logOffset":2}'], {0: files})
    assert [(file.path, file.batch, file.modified_ms) for file in found.seen] == [
        ("file:/in/a", 0, 10),
        ("file:/in/b", 1, 11),
        ("file:/in/c", 2, 12),
    ]


@pytest.mark.parametrize(
    ("offset", "kind"),
    [
        ('{"logOffset":7}', "files"),
        ('{"orders":{"0":7,"1":9}}', "kafka"),
        ('{"sourceVersion":1,"reservoirVersion":4}', None),
        ("-", None),
        ("17", None),
        ("not json", None),
    ],
)
def test_the_offset_shows_the_kind_of_its_source(offset, kind):
    assert folder([offset]).kind(0) == kind


def test_another_format_of_offsets_is_refused():
    with pytest.raises(StateError, match=r"here/offsets/3 has the format 'v2'.*formatVersion=1"):
        spark_folder(3, None, f"v2\n{ABOUT}\n{{}}", {}, "here")
