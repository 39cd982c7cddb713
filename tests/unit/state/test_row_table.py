"""Rows of one width: packed as msgpack, kept in memory between batches, and correct after every change in between."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.internals import FileRef, states, to_stored
from tidewheel import Job, sum_
from tidewheel._engine import report as reports
from tidewheel._engine import wire
from tidewheel._engine.commit import SourceProgress, check_reports
from tidewheel._engine.job_run import JobRun
from tidewheel._engine.task import TaskIdentity, run_level
from tidewheel._state import resident_rows
from tidewheel._state.key_order import alike, fixed_keys
from tidewheel._state.packed_run import PackedRun
from tidewheel._state.resident_shards import ResidentShards
from tidewheel._state.shard_reader import EmptyReader
from tidewheel._state.state_file import StateFile, StateFileWriter
from tidewheel._testing.memory import GivenSplit
from tidewheel.sinks import discard

_numbers = itertools.count()
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12) | st.from_regex(r"\Auser-[0-9]{1,30}\Z")


@st.composite
def runs(draw):
    width = draw(st.integers(1, 40))
    keys = sorted(map(to_stored, draw(st.lists(TEXTS, unique=True, max_size=60))))
    rows = draw(st.lists(st.binary(min_size=width, max_size=width), min_size=len(keys), max_size=len(keys)))
    return keys, rows, width


def packed(keys: list[bytes], rows: list[bytes], width: int) -> PackedRun:
    run = PackedRun.of(pa.array(keys, pa.binary()), np.frombuffer(b"".join(rows), f"V{width}"))
    assert run is not None
    return run


@given(runs(), st.data())
def test_a_packed_run_is_what_msgpack_encodes(run, data):
    keys, rows, _ = run
    start, stop = sorted(data.draw(st.tuples(st.integers(0, len(keys)), st.integers(0, len(keys)))))
    part = packed(*run)[start:stop]
    assert part.msgpack() == msgspec.msgpack.encode((keys[start:stop], rows[start:stop], []))
    assert list(part) == list(zip(keys[start:stop], rows[start:stop], strict=True))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(keys), max_size=len(keys))), bool)
    assert list(packed(*run).where(mask)) == [pair for pair, kept in zip(packed(*run), mask, strict=True) if kept]


@given(runs().filter(lambda run: run[0]), st.integers(40, 2000))
def test_a_state_file_of_a_packed_run_has_its_pairs(run, block_bytes):
    writer = StateFileWriter(block_bytes)
    writer.add(3, "op", packed(*run))
    data, checksum = writer.finish()
    read = StateFile.of(data, FileRef("f", len(data), checksum))
    assert [(key, row) for _, key, row in read.items(3)] == list(packed(*run))
    assert [read.get(3, "op", key) for key in run[0]] == run[1]


@given(
    st.lists(st.lists(TEXTS, unique=True, max_size=30), min_size=2, max_size=2)
    | st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=30), min_size=2, max_size=2)
)
def test_fixed_keys_compare_as_the_stored_keys_do(lists):
    stored = [sorted(map(to_stored, keys)) for keys in lists]
    fixed = [fixed_keys(pa.array(keys, pa.binary())) for keys in stored]
    if any(keys is None for keys in fixed):
        assert any(len(key) > 41 or (b"\0" in key and key[:1] != b"i") for keys in stored for key in keys)
        return
    first, second = alike(*fixed)
    if stored[0] and stored[1]:
        wanted = [sum(mine < key for mine in stored[0]) for key in stored[1]]
        assert np.searchsorted(first, second).tolist() == wanted
        assert np.isin(second, first).tolist() == [key in stored[0] for key in stored[1]]


BATCHES = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 40), st.integers(-9, 9), min_size=1),
        st.sampled_from(["plain", "plain", "plain", "lost", "forgotten", "unfit", "one task", "three tasks"]),
    ),
    min_size=1,
    max_size=12,
)


def add(key, value, total):
    """Delete the state of a key whose total is a multiple of three; states have different lengths."""
    new = int(total) + value.n
    return new, None if new % 3 == 0 else str(new).rjust(abs(new) % 5 + 1)


@pytest.mark.parametrize("kind", ["aggregate", "stateful_map"])
@pytest.mark.parametrize("key", ["text", "number", "long"])
@settings(max_examples=40, deadline=None)
@given(batches=BATCHES)
def test_totals_are_right_after_any_events_between_batches(kind, key, batches, tmp_path_factory):
    """Attempts are lost, processes forget their rows, other tasks take over, and runs are merged meanwhile."""
    name = {"text": str, "number": int, "long": "a-key-of-more-than-sixteen-bytes-{}".format}[key]
    job = Job(f"rows-{next(_numbers)}", state=f"memory:unit-rows-{next(_numbers)}", n_shards=4)
    keyed = job.source("in", lambda spark: None).key_by("k", "key")
    if kind == "aggregate":
        keyed.aggregate("total", n=sum_("n")).sink("out", discard())
    else:
        keyed.stateful_map("total", add, default="0").sink("out", discard())
    run = JobRun(job, job.plan())
    run.begin()
    local, wanted = str(tmp_path_factory.mktemp("rows")), {}

    def reports_of(split: GivenSplit, parallelism: int):
        spec = msgspec.structs.replace(run.spec(parallelism, local), shared_key="key")
        found = []
        for task in range(parallelism):
            rows = run_level(run.plan, spec, 1, TaskIdentity(task, next(_numbers)), iter(()), [(0, split)])
            found += [reports.decode(payload) for payload in wire.reports_in(rows)]
        check_reports(found, {1: parallelism})
        return spec, found

    for number, (values, event) in enumerate(batches):
        parallelism = {"one task": 1, "three tasks": 3}.get(event, 2)
        keys = [name(each) for each in values]
        split = GivenSplit(pa.RecordBatch.from_pydict({"key": keys, "n": list(values.values())}))
        if event == "lost":
            reports_of(GivenSplit(pa.RecordBatch.from_pydict({"key": keys, "n": [1000] * len(keys)})), parallelism)
        if event == "forgotten":
            resident_rows._kept.clear()
        if event == "unfit":
            resident_rows._unfit.update((place[0], place[1]) for place in resident_rows._kept)
        run.commit(*reports_of(split, parallelism), "batch", None, SourceProgress(number))
        for each, value in zip(keys, values.values(), strict=True):
            wanted[each] = wanted.get(each, 0) + value
            if kind == "stateful_map" and wanted[each] % 3 == 0:
                del wanted[each]
    found = {each: msgspec.msgpack.decode(raw) for each, raw in states(run.store, run.head).get("total", {}).items()}
    assert {each: state[-1] if kind == "aggregate" else int(state) for each, state in found.items()} == wanted
    run.release()


def run_three_batches(job: Job, folder) -> JobRun:
    """Run the same batch of eight keys three times. All rows stay in memory, and no local copy is updated."""
    resident_rows._kept.clear()
    run = JobRun(job, job.plan())
    run.begin()
    split = GivenSplit(pa.RecordBatch.from_pydict({"key": list("abcdefgh"), "n": [1] * 8}))
    for number in range(3):
        spec = msgspec.structs.replace(run.spec(1, str(folder)), shared_key="key")
        rows = run_level(run.plan, spec, 1, TaskIdentity(0, next(_numbers)), iter(()), [(0, split)])
        found = [reports.decode(payload) for payload in wire.reports_in(rows)]
        run.commit(spec, found, "batch", None, SourceProgress(number))
        assert sum(map(len, resident_rows._kept.values())) == 8
        assert [report.caught_up for report in found] == [0]
    return run


def test_rows_stay_in_memory_for_the_next_batch(tmp_path):
    job = Job("rows", state=f"memory:unit-rows-{next(_numbers)}", n_shards=4)
    job.source("in", lambda spark: None).key_by("k", "key").aggregate("total", n=sum_("n")).sink("out", discard())
    run = run_three_batches(job, tmp_path)
    totals = states(run.store, run.head)["total"]
    assert {key: msgspec.msgpack.decode(raw)[-1] for key, raw in totals.items()} == dict.fromkeys("abcdefgh", 3)
    run.release()


def test_no_more_rows_are_kept_than_allowed(monkeypatch):
    resident_rows._kept.clear()
    monkeypatch.setattr(resident_rows, "MOST_BYTES", 5 * (8 + 3))
    rows = [
        resident_rows.ResidentRows(np.arange(size, dtype=np.uint64), np.zeros(size, "V3"), None) for size in (2, 3, 1)
    ]
    resident_rows.keep({("folder", "table", shard, b"s"): each for shard, each in enumerate(rows)})
    assert sum(map(len, resident_rows._kept.values())) == 5
    resident_rows._kept.clear()


def test_states_stay_in_memory_for_the_next_batch(tmp_path):
    job = Job("states", state=f"memory:unit-rows-{next(_numbers)}", n_shards=4)
    keyed = job.source("in", lambda spark: None).key_by("k", "key", value="n")
    keyed.stateful_map("total", lambda key, n, total: (total + n, total + n), default=0).sink("out", discard())
    run = run_three_batches(job, tmp_path)
    totals = states(run.store, run.head)["total"]
    assert {key: msgspec.msgpack.decode(raw) for key, raw in totals.items()} == dict.fromkeys("abcdefgh", 3)
    run.release()


VALUES = st.dictionaries(st.integers(0, 30), st.none() | st.binary(max_size=9), min_size=1)


@given(st.lists(VALUES, min_size=1, max_size=8))
def test_rows_are_found_as_they_were_put_and_deleted(batches):
    rows, wanted = resident_rows.ResidentRows(np.empty(0, np.uint64), np.empty(0, object), None), {}
    for batch in batches:
        keys = np.array(sorted(batch), np.uint64)
        values = resident_rows.object_array([batch[key] for key in sorted(batch)])
        read, found = rows.find(keys)
        assert read.tolist() == [wanted.get(key) for key in sorted(batch)]
        assert found.tolist() == [key in wanted for key in sorted(batch)]
        rows.put(keys, values, "file", np.array([value is not None for value in values.tolist()]))
        wanted = {key: value for key, value in {**wanted, **batch}.items() if value is not None}
        assert len(rows) == len(wanted)


def test_states_of_single_keys_are_not_loaded_into_memory(tmp_path):
    resident = ResidentShards("t", str(tmp_path), {}, lambda shard: EmptyReader())
    assert resident.are_useful
    resident.drop()
    assert not ResidentShards("t", str(tmp_path), {}, lambda shard: EmptyReader()).are_useful
    resident.keep()
    assert resident.are_useful
