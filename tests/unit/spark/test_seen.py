"""What file sources have seen: all of it, in order, however it moved from the manifest to files and from files to snapshots."""

from __future__ import annotations

import itertools
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel._checkpoint.manifest import CheckpointId, Manifest, SparkLog, SparkSource
from tidewheel._spark import seen_files as module
from tidewheel._spark.seen_files import SeenFiles
from tidewheel._storage import open_store

_names = itertools.count()
SOURCES = (SparkSource("a", "files", 0), SparkSource("b", "files", 1))
LOG = SparkLog("query", offsets={0: "v1"}, files={"1/0": "x"}, sources=SOURCES, logs=2)


def line(source: int, path: str, batch: int) -> str:
    return f"{source}\t{json.dumps({'path': path, 'timestamp': 1, 'batchId': batch})}"


def store():
    return open_store(f"memory:unit-seen-{next(_names)}")


def commit(seen: SeenFiles, base: Manifest, fresh: list[str]) -> Manifest:
    sequence = base.sequence + 1
    log, parts = seen.record(base, LOG, fresh, sequence)
    return base.replace(id=CheckpointId("job", sequence), kind="batch", spark=log, driver=parts)


@settings(max_examples=25)
@given(st.lists(st.lists(st.integers(0, 1), max_size=5), max_size=40), st.integers(0, 6), st.integers(2, 4))
def test_all_that_was_seen_is_loaded_in_order(batches, inline, fanout):
    before = module.INLINE, module.FANOUT
    module.INLINE, module.FANOUT = inline, fanout
    try:
        place = store()
        state, expected = Manifest(CheckpointId("job", 1), kind="claim"), {0: [], 1: []}
        for number, sources in enumerate(batches):
            fresh = [line(source, f"file-{number}-{at}", number) for at, source in enumerate(sources)]
            for at, source in enumerate(sources):
                expected[source].append(fresh[at])
            # Each batch may be of another run.
            state = commit(SeenFiles(place, "job", f"run{number}"), state, fresh)
            assert state.spark is not None
            assert len(state.spark.seen) <= inline
            assert len(state.driver.deltas) <= 8 * fanout
            assert (state.spark.query, state.spark.files) == ("query", LOG.files)
        assert SeenFiles(place, "job", "reader").load(state) == expected[0] + expected[1]
    finally:
        module.INLINE, module.FANOUT = before


def test_a_job_without_file_sources_has_seen_nothing():
    assert SeenFiles(store(), "job", "run").load(Manifest(CheckpointId("job", 1))) == []


def test_a_file_that_is_seen_again_counts_once_as_it_was_seen_last():
    place, state = store(), Manifest(CheckpointId("job", 1), kind="claim")
    for batch in (0, 1):
        state = commit(SeenFiles(place, "job", f"run{batch}"), state, [line(0, "same", batch)])
    assert SeenFiles(place, "job", "run").load(state) == [line(0, "same", 1)]


def test_a_batch_that_runs_again_with_more_files_refers_to_its_own_list(monkeypatch):
    monkeypatch.setattr(module, "INLINE", 0)
    place, base = store(), Manifest(CheckpointId("job", 1), kind="claim")
    seen = SeenFiles(place, "job", "run")
    commit(seen, base, [line(0, "a", 0)])  # Its commit fails; the same run does the batch again.
    state = commit(seen, base, [line(0, "a", 0), line(0, "b", 0)])
    assert seen.load(state) == [line(0, "a", 0), line(0, "b", 0)]


def test_what_a_source_has_seen_that_is_gone_ends_with_the_next_snapshot(monkeypatch):
    monkeypatch.setattr(module, "INLINE", 0)
    monkeypatch.setattr(module, "FANOUT", 2)
    place, state = store(), Manifest(CheckpointId("job", 1), kind="claim")
    seen = SeenFiles(place, "job", "run")
    state = commit(seen, state, [line(0, "a", 0), *(line(1, f"b-{n}", 0) for n in range(3))])
    log, parts = seen.record(state, SparkLog("query", {0: "v1"}, sources=SOURCES[:1], logs=2), [line(0, "c", 1)], 3)
    assert seen.load(state.replace(spark=log, driver=parts)) == [line(0, "a", 0), line(0, "c", 1)]


def test_a_new_file_costs_the_same_however_many_were_seen(monkeypatch):
    monkeypatch.setattr(module, "INLINE", 4)
    monkeypatch.setattr(module, "FANOUT", 4)
    place, state = store(), Manifest(CheckpointId("job", 1), kind="claim")
    seen, written, merged = SeenFiles(place, "job", "run"), [], 0
    write = seen._write
    monkeypatch.setattr(seen, "_write", lambda lines, *rest: written.append(len(lines)) or write(lines, *rest))
    for batch in range(3000):
        state = commit(seen, state, [line(0, f"file-{batch}", batch)])
        merged = max(merged, len(state.driver.deltas))
    assert len(seen.load(state)) == 3000
    assert sum(written) < 3000 * 9, "each entry is written once a tier"
    assert merged < 4 * 6
    # A batch as large as all before it at once.
    state = commit(seen, state, [line(0, f"more-{number}", 3000) for number in range(3000)])
    assert len(seen.load(state)) == 6000


def test_entries_of_files_that_are_too_old_to_be_read_are_forgotten(monkeypatch):
    monkeypatch.setattr(module, "INLINE", 0)
    monkeypatch.setattr(module, "FANOUT", 2)
    place, state = store(), Manifest(CheckpointId("job", 1), kind="claim")
    seen = SeenFiles(place, "job", "run")
    seen.ages = {0: 10}
    for batch in range(100):
        aged, ageless = ({"path": f"{log}-{batch}", "timestamp": batch, "batchId": batch} for log in (0, 1))
        state = commit(seen, state, [f"0\t{json.dumps(aged)}", f"1\t{json.dumps(ageless)}"])
    loaded = [json.loads(each.partition("\t")[2])["path"] for each in seen.load(state)]
    assert loaded == [f"0-{batch}" for batch in range(89, 100)] + [f"1-{batch}" for batch in range(100)]
    seen.ages = {0: 10, 1: 10}
    for batch in range(100, 300):
        state = commit(seen, state, [line(0, f"0-{batch}", batch).replace('"timestamp": 1', f'"timestamp": {batch}')])
    assert sum(part.keys for part in (state.driver.snapshot, *state.driver.deltas) if part) < 250, "not 400"
