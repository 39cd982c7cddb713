"""Large merges: divided into pieces and done by tasks, with the result of a single process."""

from hypothesis import given
from hypothesis import strategies as st

from tidewheel._checkpoint.names import path
from tidewheel._checkpoint.state_files import opener
from tidewheel._engine.merging import MergeWork, merge_shards
from tidewheel._spark.merging import merge_on, pieces_of
from tidewheel._state.compaction import Merge
from tidewheel._state.references import FileRef, PartRef, ShardParts
from tidewheel._state.shard_contents import shard_items
from tidewheel._state.state_file import StateFileWriter
from tidewheel._storage import open_store

sizes = st.dictionaries(st.integers(0, 50), st.integers(0, 100), min_size=1)


@given(sizes, st.integers(0, 200))
def test_each_shard_is_in_one_piece_and_no_piece_is_much_too_large(shards, piece_bytes):
    merges = {n: Merge((PartRef(FileRef("f", 1, 1), 1, size, 1),), True) for n, size in shards.items()}
    pieces = pieces_of(MergeWork("job", 2, "r", 4096, merges), piece_bytes)
    assert sorted(shard for piece in pieces for shard in piece.shards) == sorted(shards)
    assert all(piece.shards for piece in pieces)
    assert all(piece.bytes <= piece_bytes + 100 for piece in pieces)
    assert len({piece.number for piece in pieces}) == len(pieces)


def test_tasks_merge_as_the_driver_does(spark, tmp_path):
    store = open_store(str(tmp_path))
    runs: dict[int, list[PartRef]] = {0: [], 1: [], 2: []}
    for sequence in (1, 2, 3):
        writer = StateFileWriter()
        for shard in runs:
            items = [(b"%d" % key, b"%d-%d" % (key, sequence) if key % 3 else None) for key in range(sequence, 9)]
            writer.add(shard, "t", items)
        data, checksum = writer.finish()
        store.create(path("job", f"state/{sequence}"), data)
        for shard, part in writer.parts(FileRef(f"state/{sequence}", len(data), checksum), sequence).items():
            runs[shard].append(part)
    work = MergeWork("job", 4, "spark", 0, {shard: Merge(tuple(parts), True) for shard, parts in runs.items()})
    merged = merge_on(spark, store, here_bytes=0)(work)
    alone = merge_shards(store, MergeWork("job", 4, "alone", 0, work.shards))
    fetch = opener(store, "job")

    def held(results, shard):
        return list(shard_items(ShardParts(results[shard].parts[0]), shard, fetch))

    assert merged.keys() == runs.keys()
    assert len({part.file.name for result in merged.values() for part in result.parts}) == 3
    for shard in runs:
        assert held(merged, shard) == held(alone, shard) != []
