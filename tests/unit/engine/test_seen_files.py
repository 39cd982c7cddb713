"""The files that sources have read: all of them, in the manifest, in files and in snapshots."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from support.internals import open_store
from tidewheel._checkpoint.manifest import SeenFile
from tidewheel._engine.seen_files import SeenFiles, SeenLimits
from tidewheel.checkpoints import CheckpointId, Manifest

_names = itertools.count()


def file(source: str, path: str, number: int, modified: int = 1) -> SeenFile:
    return SeenFile(source, path, number, modified, 0)


def store():
    return open_store(f"memory:unit-seen-{next(_names)}")


def commit(seen: SeenFiles, base: Manifest, fresh: list[SeenFile], sources: str = "ab") -> Manifest:
    sequence = base.sequence + 1
    inline, parts = seen.record(base, fresh, sequence, sources)
    return base.replace(id=CheckpointId("job", sequence), kind="batch", seen=inline, driver=parts)


@settings(max_examples=25)
@given(st.lists(st.lists(st.sampled_from("ab"), max_size=5), max_size=40), st.integers(0, 6), st.integers(2, 4))
def test_all_files_that_were_seen_are_loaded_in_order(batches, inline, fanout):
    limits = SeenLimits(inline, fanout, 0)
    place, numbers = store(), itertools.count()
    state, expected = Manifest(CheckpointId("job", 1), kind="claim"), {"a": [], "b": []}
    for batch, sources in enumerate(batches):
        fresh = [file(source, f"file-{batch}-{at}", next(numbers)) for at, source in enumerate(sources)]
        for each in fresh:
            expected[each.source].append(each)
        # Each batch may be of another run.
        state = commit(SeenFiles(place, "job", f"run{batch}", limits), state, fresh)
        assert len(state.seen) <= inline
        assert len(state.driver.deltas) <= 8 * fanout
    assert SeenFiles(place, "job", "reader").load(state) == expected["a"] + expected["b"]


def test_a_job_without_file_sources_has_seen_nothing():
    assert SeenFiles(store(), "job", "run").load(Manifest(CheckpointId("job", 1))) == []


def test_a_file_that_is_seen_again_counts_once_as_it_was_seen_last():
    place, state = store(), Manifest(CheckpointId("job", 1), kind="claim")
    for batch in (0, 1):
        state = commit(SeenFiles(place, "job", f"run{batch}"), state, [file("a", "same", batch)])
    assert SeenFiles(place, "job", "run").load(state) == [file("a", "same", 1)]


def test_a_batch_that_runs_again_with_more_files_refers_to_its_own_list():
    place, base = store(), Manifest(CheckpointId("job", 1), kind="claim")
    seen = SeenFiles(place, "job", "run", SeenLimits(inline=0))
    commit(seen, base, [file("a", "a", 0)])  # Its commit fails; the same run does the batch again.
    state = commit(seen, base, [file("a", "a", 0), file("a", "b", 1)])
    assert seen.load(state) == [file("a", "a", 0), file("a", "b", 1)]


def test_files_of_a_removed_source_are_dropped_with_the_next_snapshot():
    place, state = store(), Manifest(CheckpointId("job", 1), kind="claim")
    seen = SeenFiles(place, "job", "run", SeenLimits(inline=0, fan=1, floor_bytes=0))
    state = commit(seen, state, [file("a", "a", 0), *(file("b", f"b-{n}", n) for n in range(3))])
    state = commit(seen, state, [file("a", "c", 1)], sources="a")
    assert seen.load(state) == [file("a", "a", 0), file("a", "c", 1)]


def test_a_new_file_costs_the_same_however_many_were_seen(monkeypatch):
    place, state = store(), Manifest(CheckpointId("job", 1), kind="claim")
    seen, written, merged = SeenFiles(place, "job", "run", SeenLimits(inline=4, fan=4, floor_bytes=0)), [], 0
    write = seen._write
    monkeypatch.setattr(seen, "_write", lambda files, *rest: written.append(len(files)) or write(files, *rest))
    for batch in range(3000):
        state = commit(seen, state, [file("a", f"file-{batch}", batch)])
        merged = max(merged, len(state.driver.deltas))
    assert len(seen.load(state)) == 3000
    assert sum(written) < 3000 * 9, "each entry is written once a tier"
    assert merged < 4 * 6
    # A batch as large as all before it at once.
    state = commit(seen, state, [file("a", f"more-{number}", 3000 + number) for number in range(3000)])
    assert len(seen.load(state)) == 6000


def test_entries_of_files_too_old_to_be_read_are_removed():
    place, state = store(), Manifest(CheckpointId("job", 1), kind="claim")
    seen = SeenFiles(place, "job", "run", SeenLimits(inline=0, fan=2, floor_bytes=0))
    seen.ages = {"a": 10}
    for batch in range(100):
        fresh = [file(source, f"{source}-{batch}", batch, modified=batch) for source in "ab"]
        state = commit(seen, state, fresh)
    loaded = [each.path for each in seen.load(state)]
    assert loaded == [f"a-{batch}" for batch in range(89, 100)] + [f"b-{batch}" for batch in range(100)]
    seen.ages = {"a": 10, "b": 10}
    for batch in range(100, 300):
        state = commit(seen, state, [file("a", f"a-{batch}", batch, modified=batch)])
    assert sum(part.keys for part in (state.driver.snapshot, *state.driver.deltas) if part) < 250, "not 400"


def test_the_last_file_of_each_source_is_found_in_the_newest_files_first(monkeypatch):
    place, state = store(), Manifest(CheckpointId("job", 1), kind="claim")
    seen, numbers = SeenFiles(place, "job", "run", SeenLimits(inline=2)), itertools.count()
    for source in "babaaaaaa":
        state = commit(seen, state, [file(source, f"file-{(number := next(numbers))}", number)])
    read = []
    entries = seen.entries
    monkeypatch.setattr(seen, "entries", lambda part: read.append(part) or entries(part))
    assert seen.newest(state, "a") == {"a": file("a", "file-8", 8)}
    assert len(read) <= 1
    assert seen.newest(state, "abc") == {"a": file("a", "file-8", 8), "b": file("b", "file-2", 2)}


def test_replaced_entries_of_any_number_are_loaded_again():
    place, base = store(), Manifest(CheckpointId("job", 1), kind="claim")
    for number in (3, 1000):
        files = [file("a", f"file-{each}", each) for each in range(number)]
        seen = SeenFiles(place, "job", f"run{number}")
        state = seen.replaced(base, files)
        assert seen.load(state) == files
        assert len(state.seen) <= SeenLimits().inline
