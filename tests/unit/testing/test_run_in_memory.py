"""run_in_memory: a job as it is, without Spark and without a disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewheel import Job
from tidewheel.errors import ConfigError
from tidewheel.sinks import collect
from tidewheel.sinks import files as file_sink
from tidewheel.sources import files
from tidewheel.testing import run_in_memory


def clicks(folder: Path, out=None) -> Job:
    job = Job("clicks", state=f"file://{folder}/state")
    job.source("in", files(f"{folder}/in"), value=dict).key_by("by-user", "user", value="n").stateful_map(
        "sum", lambda user, n, total: (total + n, total + n), default=0
    ).sink("out", out or file_sink(f"{folder}/out"))
    return job


RECORDS = [{"user": "ada", "n": 3}, {"user": "bob", "n": 1}, {"user": "ada", "n": 4}]


def test_the_program_itself_is_run_and_nothing_is_written(tmp_path):
    result = run_in_memory(clicks(tmp_path), {"in": RECORDS})
    assert result.outputs["out"] == [
        {"user": "ada", "value": 3},
        {"user": "bob", "value": 1},
        {"user": "ada", "value": 7},
    ]
    assert result.states == {"sum": {"ada": 7, "bob": 1}}
    assert list(tmp_path.iterdir()) == []


def test_batches_may_be_given_one_by_one_at_any_parallelism(tmp_path):
    result = run_in_memory(clicks(tmp_path), [{"in": RECORDS[:1]}, {"in": RECORDS[1:]}], parallelism=3, partitions=2)
    assert result.states == {"sum": {"ada": 7, "bob": 1}}
    assert result.checkpoint.batch == 1


def test_a_sink_of_the_program_that_collects_goes_on_collecting(tmp_path):
    out = collect()
    result = run_in_memory(clicks(tmp_path, out), {"in": RECORDS})
    assert out.records == result.outputs["out"]
    assert len(out.records) == 3


def test_each_run_has_a_state_of_its_own_unless_a_place_is_named(tmp_path):
    job = clicks(tmp_path)
    assert run_in_memory(job, {"in": RECORDS}).states == run_in_memory(job, {"in": RECORDS}).states
    state = f"file://{tmp_path}/kept"
    run_in_memory(job, {"in": RECORDS}, state=state, flush=False)
    assert run_in_memory(job, {"in": RECORDS}, state=state).states == {"sum": {"ada": 14, "bob": 2}}


def test_an_unknown_source_is_named(tmp_path):
    with pytest.raises(ValueError, match="no source named other"):
        run_in_memory(clicks(tmp_path), {"other": []})


def test_an_item_that_does_not_fit_is_named_with_its_source(tmp_path):
    records = [{"user": "ada", "n": 3}, {"user": "bob", "n": "three"}]
    with pytest.raises(
        ConfigError, match=r"source .in.: the item \{.user.: .bob., .n.: .three.\} does not fit with .*'ada'"
    ):
        run_in_memory(clicks(tmp_path), {"in": records})


def test_a_first_item_that_cannot_be_a_record_is_named_with_its_source(tmp_path):
    with pytest.raises(ConfigError, match=r"source 'in': the item {'user': <object .*} cannot be a record"):
        run_in_memory(clicks(tmp_path), {"in": [{"user": object()}]})
