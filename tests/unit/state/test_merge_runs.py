"""Merged runs contain the entries of their runs, and copies as of any commit catch up from them."""

from __future__ import annotations

import tempfile
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.internals import FileRef
from support.state_build import History, catch_up, contents
from tidewheel._state import newest_items
from tidewheel._state.compaction import Merge, adopted
from tidewheel._state.local_copies import LocalCopies
from tidewheel._state.merge_runs import MergedFiles, labelled, merged_items
from tidewheel._state.shard_contents import shard_items
from tidewheel._testing.plain_copies import PlainCopy

keys = st.sampled_from([b"a", b"b", b"c", b"d" * 600])
changes = st.dictionaries(
    st.sampled_from(["sums", "sums/timers"]),
    st.dictionaries(keys, st.none() | st.binary(max_size=3), min_size=1, max_size=4),
    max_size=2,
)
_names = count()


def merge_some(history: History, start: int, stop: int | None, file_bytes: int = 1) -> None:
    """Merge runs of a history and adopt the result; without a stop, all parts."""
    snapshot = () if history.parts.snapshot is None else (history.parts.snapshot,)
    runs = (*snapshot, *history.parts.deltas) if stop is None else history.parts.deltas[start:stop]
    merge = Merge(runs, stop is None)

    def stored(data: bytes, checksum: int) -> FileRef:
        name = f"merged-{next(_names)}"
        (history.folder / name).write_bytes(data)
        return FileRef(name, len(data), checksum)

    files = MergedFiles(stored, file_bytes)
    files.add(history.shard, merged_items(history.shard, merge, history.fetch))
    parts = adopted(history.parts, labelled(merge, files.finish()[history.shard]))
    assert parts is not None
    history.parts = parts


def held(history: History) -> dict[str, dict[bytes, bytes]]:
    found: dict[str, dict[bytes, bytes]] = {}
    for table, key, value in shard_items(history.parts, history.shard, history.fetch):
        found.setdefault(table, {})[key] = value
    return found


@given(st.data())
@settings(max_examples=60)
def test_any_order_of_commits_merges_and_catching_up_gives_a_plain_dict(data) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder))
        copies = [PlainCopy(0) for _ in range(3)]
        for _ in range(data.draw(st.integers(1, 14))):
            step = data.draw(st.sampled_from(["commit", "commit", "merge", "whole", "catch up"]))
            runs = len(history.parts.deltas)
            if step == "commit":
                history.commit(data.draw(changes) or None)
            elif step == "merge" and runs > 1:
                start = data.draw(st.integers(0, runs - 2))
                stop = data.draw(st.integers(start + 2, runs))
                begin = history.parts.snapshot.sequence if history.parts.snapshot else 0
                chosen = history.parts.deltas[start:stop]
                # Parts of one commit are never separated, and those of the snapshot are not deltas.
                around = (history.parts.deltas[start - 1 : start], history.parts.deltas[stop : stop + 1])
                cut = {part.sequence for neighbour in around for part in neighbour}
                if chosen[0].sequence > begin and not cut & {chosen[0].sequence, chosen[-1].sequence}:
                    merge_some(history, start, stop, data.draw(st.sampled_from([1, 1 << 20])))
            elif step == "whole" and runs:
                merge_some(history, 0, None, data.draw(st.sampled_from([1, 1 << 20])))
            elif step == "catch up":
                copy = data.draw(st.sampled_from(copies))
                copy.catch_up(history.parts, history.sequence, history.fetch)
                assert {table: items for table, items in copy.tables.items() if items} == history.expected()
            assert held(history) == history.expected()
        for copy in copies:
            copy.catch_up(history.parts, history.sequence, history.fetch)
            assert {table: items for table, items in copy.tables.items() if items} == history.expected()


def test_large_runs_are_merged_as_small_ones_are(tmp_path, monkeypatch) -> None:
    history = History(tmp_path)
    for number in range(5):
        history.commit({"t": {b"%d" % key: None if key % 5 == number else b"%d" % number for key in range(number, 60)}})
    expected = dict(history.expected())
    monkeypatch.setattr(newest_items, "_SMALL_KEYS", 0)
    merge_some(history, 1, 4, 1 << 20)
    assert held(history) == expected
    merge_some(history, 0, None, 1 << 20)
    assert history.parts.deltas == ()
    assert held(history) == expected


def test_a_copy_on_disk_reads_merged_runs_and_snapshots_in_several_files(tmp_path) -> None:
    history = History(tmp_path / "store")
    copies = LocalCopies(tmp_path / "local")
    one, other = copies.shard(0), LocalCopies(tmp_path / "other").shard(0)
    history.commit({"a": {b"1": b"x", b"2": b"x"}, "b": {b"1": b"x"}})
    catch_up(one, history)
    history.commit({"a": {b"1": None}})
    history.commit({"a": {b"3": b"y"}, "b": {b"1": b"z"}})
    merge_some(history, 0, 3)
    assert len(history.parts.deltas) > 1
    catch_up(one, history)
    merge_some(history, 0, None)
    assert history.parts.snapshot is not None
    history.commit({"b": {b"9": b"9"}})
    for copy in (one, other):
        catch_up(copy, history)
        with copy.begin() as reader:
            assert contents(reader) == history.expected()
        copy.close()


@pytest.mark.parametrize(("start", "stop"), [(0, 2), (0, 4), (1, 4), (0, None)])
def test_a_copy_of_another_history_is_replaced_after_a_merge(tmp_path, start, stop) -> None:
    history, other = History(tmp_path / "one"), History(tmp_path / "other", run="other")
    for commit in range(4):
        history.commit({"t": {b"k": b"%d" % commit}})
        other.commit({"t": {b"k": b"other %d" % commit}})
    copy = PlainCopy(0)
    copy.catch_up(other.parts, other.sequence, other.fetch)
    copy.put("t", b"only here", b"1")
    merge_some(history, start, stop)
    catch_up(copy, history)
    assert copy.tables == history.expected()


def test_a_copy_catches_up_over_commits_of_several_runs_that_were_merged(tmp_path) -> None:
    history, copy = History(tmp_path), PlainCopy(0)
    for commit in range(6):
        history.run = f"run-{commit // 2}"
        history.commit({"t": {b"%d" % commit: b"x"}})
        if commit == 2:
            catch_up(copy, history)
    merge_some(history, 0, 6)
    lacked = copy.catch_up(history.parts, history.sequence, history.fetch)
    assert copy.tables == history.expected()
    assert lacked == sum(part.bytes for part in history.parts.deltas)


def test_a_copy_older_than_the_runs_that_a_merged_part_lists_is_replaced(tmp_path) -> None:
    history, copy = History(tmp_path), PlainCopy(0)
    for commit in range(12):
        history.run = f"run-{commit}"
        history.commit({"t": {b"%d" % commit: b"x"}})
        if commit == 0:
            catch_up(copy, history)
            copy.put("t", b"a trace", b"1")
    merge_some(history, 0, 12)
    assert len(history.parts.deltas[0].made) == 8
    catch_up(copy, history)
    assert copy.tables == history.expected()
