"""The state of aggregates is read by the names that the program gives its results."""

from __future__ import annotations

import itertools

import pytest
from pyarrow import parquet

from tidewheel import Job, StoredJob, count, max_, mean, min_, session, sliding, sum_, tumbling
from tidewheel._checkpoint.format_6 import layout_of
from tidewheel._checkpoint.manifest import OperatorInfo
from tidewheel._checkpoint.named_results import result_fields, with_names
from tidewheel.codecs import msgpack_codec
from tidewheel.sinks import discard
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun

_fresh = itertools.count()
RECORDS = [{"user": "ada", "cents": cents, "at": at} for cents, at in ((3, 5), (None, 7), (4, 12))]


def made(state: str | None = None, window=None, **aggregates) -> Job:
    job = Job("sums", state=state or f"memory:named-{next(_fresh)}", n_shards=4)
    stream = job.source("in", iterable([]), type=dict)
    if window is not None:
        stream = stream.assign_timestamps("at", lambda record: record["at"], unit="ns").limit_out_of_orderness(
            "bound", "1 ns"
        )
        late = stream.late
        late.sink("late", discard())
    keyed = stream.key_by("by", lambda record: record["user"])
    found = keyed.aggregate("agg", **aggregates) if window is None else keyed.window("agg", window, **aggregates)
    found.sink("out", discard())
    return job


def stored(job: Job, records=RECORDS) -> StoredJob:
    with MemoryRun(job) as run:
        run.batch({"in": records})
    return StoredJob(job.name, state=job.state)


def test_each_result_has_its_name_and_internal_numbers_are_hidden():
    job = made(cents=sum_("cents"), rows=count(), mean=mean("cents"), most=max_("cents"))
    found = stored(job)
    expected = {"cents": 7, "rows": 3, "mean": 3.5, "most": 4}
    assert found.get("agg", "ada").value == job.query("agg", "ada").value == expected
    assert dict(found.scan("agg")) == {"ada": expected}


def test_the_stored_form_is_available_on_request():
    found = stored(made(cents=sum_("cents"), rows=count()))
    assert found.get("agg", "ada", type=list[int]).value == [2, 7, 3]
    assert dict(found.scan("agg", type=list)) == {"ada": [2, 7, 3]}


def test_waiting_messages_of_a_join_have_names():
    job = Job("joins", state=f"memory:named-{next(_fresh)}", n_shards=4)
    left, right = (
        job.source(side, iterable([]), type=dict)
        .assign_timestamps(f"t-{side}", "at", unit="ns")
        .key_by(f"by-{side}", "user")
        for side in ("left", "right")
    )
    left.interval_join("near", right, before="1 ns", after="1 ns").sink("out-near", discard())
    left.as_of_join("last", right).sink("out-last", discard())
    left.window_join("same", right, tumbling("10 ns")).sink("out-same", discard())
    a, b, c = ({"user": "ada", "at": at} for at in (5, 9, 6))
    with MemoryRun(job) as run:
        run.batch({"left": [a, b], "right": [c]})
    found = StoredJob(job.name, state=job.state)
    assert found.get("near", "ada").value == {
        "left": [{"time": 5, "value": a, "paired": True}, {"time": 9, "value": b, "paired": False}],
        "right": [{"time": 6, "value": c, "paired": True}],
    }
    assert dict(found.scan("last")) == {
        "ada": {"left": [{"time": 5, "value": a}, {"time": 9, "value": b}], "right": [{"time": 6, "value": c}]}
    }
    assert found.get("same", "ada").value == [{"start": 0, "end": 10, "left": [a, b], "right": [c]}]
    assert found.get("same", "ada", type=dict).value == {0: [10, [a, b], [c]]}


def test_a_result_of_nulls_alone_is_none():
    found = stored(made(least=min_("cents"), mean=mean("cents"), n=count("cents")), RECORDS[1:2])
    assert found.get("agg", "ada").value == {"least": None, "mean": None, "n": 0}


def test_an_export_has_a_column_for_each_result(tmp_path):
    found = stored(made(cents=sum_("cents"), mean=mean("cents")))
    found.export("agg", tmp_path / "out.parquet")
    assert parquet.read_table(tmp_path / "out.parquet").to_pylist() == [{"key": "ada", "cents": 7, "mean": 3.5}]


def test_results_may_be_renamed_added_and_dropped():
    job = made(cents=sum_("cents"), rows=count())
    stored(job)
    found = stored(made(job.state, total=sum_("cents"), most=max_("cents")))
    assert found.get("agg", "ada").value == {"total": 14, "most": 4}


@pytest.mark.parametrize(
    ("window", "spans"),
    [
        (tumbling("10 ns"), [(0, 10, 3), (10, 20, 4)]),
        (sliding("10 ns", every="5 ns"), [(5, 10, 3), (10, 15, 4)]),
        (session("3 ns"), [(5, 10, 3), (12, 15, 4)]),
    ],
)
def test_open_windows_have_their_start_and_end(window, spans):
    found = stored(made(window=window, cents=sum_("cents")))
    expected = [{"start": start, "end": end, "cents": cents} for start, end, cents in spans]
    assert found.get("agg", "ada").value == expected
    assert found.get("agg", "ada", type=list).value[-1][-1] == 4


def test_a_checkpoint_without_names_of_results_is_shown_as_stored():
    codec = msgpack_codec(list)
    fields = result_fields({"n": "sum:a, b"})
    for info in (
        OperatorInfo("aggregate", "msgpack", 1, layout=layout_of("count:n, sum:n")),
        OperatorInfo("aggregate", "msgpack", 1, layout=layout_of("count:n, sum:n"), values=fields),
        OperatorInfo("window", "msgpack", 1, layout=layout_of("sessions of count:n, sum:n"), values=fields),
    ):
        assert with_names(info, codec) is codec
