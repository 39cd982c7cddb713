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
@given(st.lists(st.lists(st.integers(0, 1), max_size=5), max_size=40), st.integers(0, 6), st.integers(1, 4))
def test_all_that_was_seen_is_loaded_in_order(batches, inline, deltas):
    before = module.INLINE, module._MAX_DELTAS
    module.INLINE, module._MAX_DELTAS = inline, deltas
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
            assert len(state.driver.deltas) <= deltas + 1
            assert (state.spark.query, state.spark.files) == ("query", LOG.files)
        assert SeenFiles(place, "job", "reader").load(state) == expected[0] + expected[1]
    finally:
        module.INLINE, module._MAX_DELTAS = before


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
    monkeypatch.setattr(module, "_MAX_DELTAS", 1)
    place, state = store(), Manifest(CheckpointId("job", 1), kind="claim")
    seen = SeenFiles(place, "job", "run")
    state = commit(seen, state, [line(0, "a", 0), line(1, "b", 0)])
    log, parts = seen.record(state, SparkLog("query", {0: "v1"}, sources=SOURCES[:1], logs=2), [line(0, "c", 1)], 3)
    assert seen.load(state.replace(spark=log, driver=parts)) == [line(0, "a", 0), line(0, "c", 1)]
