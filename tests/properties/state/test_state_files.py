"""State files: what is written is read back, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.internals import FileRef
from support.state_build import Tables, state_file
from tidewheel._state import state_file as files
from tidewheel._state.state_file import DROPPED, MISSING, StateFile, StateFileWriter
from tidewheel.errors import CorruptError, StateError

keys = st.binary(min_size=1, max_size=12) | st.binary(min_size=500, max_size=600)
values = st.none() | st.binary(max_size=40)
tables = st.dictionaries(
    st.sampled_from(["sums", "sums/timers", "ü"]), st.dictionaries(keys, values, max_size=30), max_size=3
)
shards = st.dictionaries(st.integers(0, 65535), tables, max_size=4)


def read_all(file: StateFile) -> dict[int, dict[str, dict[bytes, bytes | None]]]:
    found: dict[int, dict[str, dict[bytes, bytes | None]]] = {}
    for shard in file.shards():
        for table, key, value in file.items(shard):
            found.setdefault(shard, {}).setdefault(table, {})[key] = value
    return found


def without_empty(shards: dict[int, Tables]) -> dict[int, Tables]:
    kept = {shard: {name: items for name, items in by.items() if items} for shard, by in shards.items()}
    return {shard: by for shard, by in kept.items() if by}


@given(shards, st.integers(1, 2000))
def test_added_entries_are_read_back(shards: dict[int, Tables], block_bytes: int) -> None:
    ref, data = state_file("f", shards, block_bytes)
    file = StateFile.of(data, ref)
    assert read_all(file) == without_empty(shards)
    for shard, by_table in shards.items():
        assert file.tables(shard) == sorted(table for table, items in by_table.items() if items)


@given(shards, st.integers(1, 2000))
def test_items_of_a_table_ascend(shards: dict[int, Tables], block_bytes: int) -> None:
    ref, data = state_file("f", shards, block_bytes)
    file = StateFile.of(data, ref)
    for shard in file.shards():
        for table in file.tables(shard):
            found = [key for _, key, _ in file.items(shard, table)]
            assert found == sorted(set(found))


@given(tables, st.integers(1, 2000), st.lists(keys, max_size=5))
def test_get_finds_values_drops_and_gaps(tables: Tables, block_bytes: int, others: list[bytes]) -> None:
    ref, data = state_file("f", {3: tables}, block_bytes)
    file = StateFile.of(data, ref)
    for table, items in tables.items():
        for key in [*items, *others]:
            value = items.get(key, MISSING)
            assert file.get(3, table, key) == (DROPPED if value is None else value)
        assert file.get(4, table, b"k") is MISSING
    assert file.get(3, "no such table", b"k") is MISSING


@given(shards)
def test_the_same_items_give_the_same_bytes(shards: dict[int, Tables]) -> None:
    assert state_file("f", shards) == state_file("f", shards)


@given(shards)
def test_parts_have_the_number_of_keys_of_each_shard(shards: dict[int, Tables]) -> None:
    ref, data = state_file("f", shards)
    parts = StateFile.of(data, ref).parts(7)
    expected = {shard: sum(map(len, by.values())) for shard, by in without_empty(shards).items()}
    assert {shard: part.keys for shard, part in parts.items()} == expected
    assert all(part.file == ref and part.sequence == 7 for part in parts.values())
    assert sum(part.bytes for part in parts.values()) <= ref.size


EXAMPLE: dict[int, Tables] = {
    1: {"sums": {b"key-%d" % n: b"value-%d" % n for n in range(40)}, "t": {b"gone": None}},
    9: {"sums": {b"k": b"", b"x" * 600: b"long"}},
}


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_flipped_byte_is_found(mask: int) -> None:
    ref, data = state_file("f", EXAMPLE)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= mask
        with pytest.raises(CorruptError, match="state file f"):
            StateFile.of(bytes(damaged), ref).verify()


def test_every_truncation_is_found() -> None:
    ref, data = state_file("f", EXAMPLE)
    for length in range(len(data)):
        with pytest.raises(CorruptError, match="state file f"):
            StateFile.of(data[:length], ref).verify()
        # Also when the reference was made for the shorter file, and only the checksum can tell.
        with pytest.raises(CorruptError, match="state file f"):
            StateFile.of(data[:length], FileRef("f", length, ref.checksum)).verify()


@settings(max_examples=200)
@given(st.binary(max_size=200), st.integers(0, 2**64 - 1))
def test_bytes_that_are_no_state_file_are_refused(data: bytes, checksum: int) -> None:
    with pytest.raises(CorruptError):
        StateFile.of(data, FileRef("f", len(data), checksum)).verify()
    with pytest.raises(CorruptError):
        StateFile.of(data + b"TWSTATE\n", FileRef("f", len(data) + 8, checksum)).verify()


def test_a_file_in_anothers_place_is_refused() -> None:
    ref, _ = state_file("f", EXAMPLE)
    _, other = state_file("f", {1: {"sums": {b"a": b"b"}}})
    with pytest.raises(CorruptError):
        StateFile.of(other, ref)
    with pytest.raises(CorruptError, match="the reference says"):
        StateFile.of(other, FileRef("f", len(other), ref.checksum))


def test_corruption_names_file_block_and_what_to_do() -> None:
    ref, data = state_file("f", EXAMPLE)
    with pytest.raises(CorruptError, match=r"state file f, block at byte 0 \(shard 1, table 'sums'\).*restore"):
        StateFile.of(b"\0" + data[1:], ref).verify()


def test_a_newer_format_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FORMAT_VERSION", 2)
    ref, data = state_file("f", EXAMPLE)
    monkeypatch.undo()
    with pytest.raises(StateError, match=r"format version 2; this Tidewheel reads 1"):
        StateFile.of(data, ref)


def test_opening_reads_the_end_only_and_get_reads_one_block() -> None:
    items = {b"%06d" % n: b"%d" % (n * n) * 20 for n in range(20_000)}
    ref, data = state_file("f", {0: {"t": items}}, 4096)
    reads: list[tuple[int, int]] = []

    def read_range(path: str, start: int, length: int) -> bytes:
        assert path == "f"
        reads.append((start, length))
        return data[start : start + length]

    file = StateFile(read_range, ref)
    assert sum(length for _, length in reads) < len(data) / 2
    reads.clear()
    assert file.get(0, "t", b"012345") == items[b"012345"]
    assert len(reads) == 1
    assert reads[0][1] < 4096


def test_an_index_longer_than_the_first_read_is_read_whole() -> None:
    shards: dict[int, Tables] = {n: {"t": {b"key-%d" % n * 20: b"v"}} for n in range(1500)}
    ref, data = state_file("f", shards)
    file = StateFile.of(data, ref)
    assert file.shards() == list(range(1500))
    assert file.verify() == 1500


def test_blocks_of_a_shard_cost_one_read() -> None:
    ref, data = state_file("f", {n: {"t": {b"%d" % i: b"v" for i in range(500)}} for n in range(3)})
    reads = []

    def read_range(_: str, start: int, length: int) -> bytes:
        reads.append(start)
        return data[start : start + length]

    file = StateFile(read_range, ref)
    reads.clear()
    assert len(file.entries(1)) > 1
    assert len(list(file.items(1))) == 500
    assert len(reads) == 1


def test_blocks_keep_to_their_size() -> None:
    sizes = [10] * 3000 + [50_000] * 5
    items = [(b"%08d" % n, bytes(str(n), "ascii") * (size // 8 + 1)) for n, size in enumerate(sizes)]
    writer = StateFileWriter(block_bytes=4096)
    writer.add(0, "t", items)
    data, checksum = writer.finish()
    file = StateFile.of(data, FileRef("f", len(data), checksum))
    assert all(entry.raw_length <= 4 * 4096 or entry.count == 1 for entry in file.entries(0))
    assert len(file.entries(0)) < 3000 / 10


def test_a_second_run_continues_where_the_first_ended() -> None:
    writer = StateFileWriter()
    writer.add(0, "t", [(b"a", b"1")])
    writer.add(1, "t", [(b"a", b"2")])
    writer.add(0, "t", [(b"b", None)])
    data, checksum = writer.finish()
    file = StateFile.of(data, FileRef("f", len(data), checksum))
    assert list(file.items(0)) == [("t", b"a", b"1"), ("t", b"b", None)]


@pytest.mark.parametrize(
    "keys",
    [[b"b", b"a"], [b"a", b"a"], [b""], [b"a", b"c", b"b", b"d"], [b"a", b"", b"b"]],
)
def test_keys_out_of_order_repeated_or_empty_are_refused(keys: list[bytes]) -> None:
    with pytest.raises(StateError, match=r"shard 5, table 'sums'.*sort"):
        StateFileWriter().add(5, "sums", [(key, b"v") for key in keys])


def test_a_run_that_starts_before_the_last_one_ended_is_refused() -> None:
    writer = StateFileWriter()
    writer.add(0, "t", [(b"b", b"1")])
    with pytest.raises(StateError, match="ascending"):
        writer.add(0, "t", [(b"b", b"2")])


@pytest.mark.parametrize("table", ["", "a\0b", "n" * 600])
def test_a_table_that_lmdb_cannot_name_is_refused(table: str) -> None:
    with pytest.raises(StateError, match="table"):
        StateFileWriter().add(0, table, [(b"a", b"1")])


def test_a_file_without_items_is_a_file() -> None:
    ref, data = state_file("f", {})
    file = StateFile.of(data, ref)
    assert file.shards() == []
    assert list(file.items(0)) == []
    assert file.verify() == 0
