"""run_in_memory: an unchanged job, without Spark and without a disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewheel import Job, count, tumbling
from tidewheel.cells import Encoding
from tidewheel.errors import ConfigError
from tidewheel.sinks import collect
from tidewheel.sinks import files as file_sink
from tidewheel.sources import files, iterable
from tidewheel.testing import CELL, CRASH, MemoryRun, run_in_memory, run_script


def clicks(folder: Path, out=None) -> Job:
    job = Job("clicks", state=f"file://{folder}/state")
    job.source("in", files(f"{folder}/in"), type=dict).key_by("by-user", "user", value="n").stateful_map(
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


def test_a_collecting_sink_of_the_program_keeps_collecting(tmp_path):
    out = collect()
    result = run_in_memory(clicks(tmp_path, out), {"in": RECORDS})
    assert out.records == result.outputs["out"]
    assert len(out.records) == 3


def test_each_run_has_its_own_state_unless_a_place_is_named(tmp_path):
    job = clicks(tmp_path)
    assert run_in_memory(job, {"in": RECORDS}).states == run_in_memory(job, {"in": RECORDS}).states
    state = f"file://{tmp_path}/kept"
    run_in_memory(job, {"in": RECORDS}, state=state, flush=False)
    assert run_in_memory(job, {"in": RECORDS}, state=state).states == {"sum": {"ada": 14, "bob": 2}}


def test_an_unknown_source_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"job 'clicks' has no source 'other'; it has 'in'$"):
        run_in_memory(clicks(tmp_path), {"other": []})


def test_a_misspelt_source_is_refused_with_the_nearest_name():
    job = Job("clicks")
    for name in ("orders", "payments"):
        job.source(name, files("in"), type=int).sink(f"out-{name}", collect())
    with pytest.raises(
        ValueError, match=r"no source 'order'; it has 'orders' and 'payments'\. Did you mean 'orders'\?"
    ):
        run_in_memory(job, {"order": [1]})


def test_an_unknown_sink_or_state_is_refused_with_the_known_ones(tmp_path):
    result = run_in_memory(clicks(tmp_path), {"in": RECORDS})
    with pytest.raises(KeyError, match=r"no sink 'outs'; it has 'out'\. Did you mean 'out'\?"):
        result.outputs["outs"]
    with pytest.raises(KeyError, match=r"no state of a step 'total'; it has 'sum'"):
        result.states["total"]
    assert "outs" not in result.outputs
    assert result.outputs.get("outs") is None


@pytest.mark.parametrize("given", [{"user": "ada", "n": 3}, "ada"])
def test_one_record_in_place_of_a_list_is_refused(tmp_path, given):
    with pytest.raises(ConfigError, match=r"source 'in': expected a list of records, not .*ada.*: \{'in': \[RECORD"):
        run_in_memory(clicks(tmp_path), {"in": given})


@pytest.mark.parametrize("given", [("limit", 2), CRASH(), None])
def test_a_value_other_than_a_batch_or_marker_is_refused(given):
    with pytest.raises(ConfigError, match=r"is neither a batch, such as .* nor a CELL, PAUSE or RESCALE"):
        run_in_memory(live(), [{"in": [1]}, given])


def live(state: str = "memory:") -> Job:
    job = Job("live", state=state)
    limit = job.cell("limit", int, default=1)
    job.source("in", files("in"), type=int).filter("over", lambda n: n > limit.value).sink("out", collect())
    return job


def test_a_cell_has_its_value_from_the_next_batch_on(tmp_path):
    batches = [{"in": [1, 2]}, CELL("limit", 2), {"in": [2, 3]}, CELL("limit", None), {"in": [1, 2]}]
    for state in (None, f"file://{tmp_path}/state"):
        outputs = run_in_memory(live(), batches, state=state).outputs
        assert outputs["out"] == [{"value": 2}, {"value": 3}, {"value": 2}]


def test_a_cell_that_the_job_does_not_declare_or_of_another_type_is_refused():
    with pytest.raises(ConfigError, match="job 'live' declares no cell 'limits'; it declares limit"):
        run_in_memory(live(), [CELL("limits", 2), {"in": [1]}])
    with pytest.raises(Encoding, match="'high' cannot be written to the cell 'limit' of job 'live'"):
        run_in_memory(live(), [CELL("limit", "high"), {"in": [1]}])


def test_a_memory_run_changes_cells_between_batches(tmp_path):
    job = live(f"file://{tmp_path}")
    with MemoryRun(job) as run:
        run.batch({"in": [2]})
        run.set_cell("limit", 2)
        run.batch({"in": [2, 3]})
    [sink] = [node.operator.sink for node in job.graph.nodes if node.name == "out"]
    assert sink.records == [{"value": 2}, {"value": 3}]


def test_an_item_that_does_not_fit_is_named_with_its_source(tmp_path):
    records = [{"user": "ada", "n": 3}, {"user": "bob", "n": "three"}]
    with pytest.raises(
        ConfigError,
        match=r"source .in.: the item \{.user.: .bob., .n.: .three.\} has other types than earlier ones, .*'ada'",
    ):
        run_in_memory(clicks(tmp_path), {"in": records})


def test_a_first_item_that_cannot_be_a_record_is_named_with_its_source(tmp_path):
    with pytest.raises(ConfigError, match=r"source 'in': the item {'user': <object .*} cannot be a record"):
        run_in_memory(clicks(tmp_path), {"in": [{"user": object()}]})


def test_a_warning_points_at_the_line_of_the_test():
    job = Job("warned", state="memory:warned")
    timed = job.source("in", iterable([{"n": 1}])).assign_timestamps("at", "n", unit="s").key_by("by", "n")
    timed.window("w", tumbling("1 s"), n=count()).sink("out", collect())
    for run in (
        lambda: run_in_memory(job),
        lambda: run_in_memory(job, {"in": [{"n": 1}]}),
        lambda: run_script(job),
    ):
        with pytest.warns(UserWarning, match="other runs refuse") as warned:
            run()
        assert [(each.filename, each.lineno) for each in warned] == [(__file__, run.__code__.co_firstlineno)]
