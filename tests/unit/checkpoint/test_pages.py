import itertools
import pickle

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from support.internals import FileRef, PartRef, ShardParts, faults, open_store
from tidewheel._checkpoint import pages
from tidewheel._checkpoint.encoding import decode, encode
from tidewheel._checkpoint.envelope import seal
from tidewheel._checkpoint.garbage import collect
from tidewheel._checkpoint.names import state_file
from tidewheel._checkpoint.pages import PAGE_SHARDS, PageReader, change_of, changed, page_count, pages_to_write
from tidewheel._checkpoint.shard_map import ShardMap
from tidewheel._checkpoint.tools.fork import fork
from tidewheel._checkpoint.tools.restore import restore
from tidewheel._checkpoint.tools.savepoint import find, make_savepoint
from tidewheel._checkpoint.tools.state_reader import hold
from tidewheel._checkpoint.tools.verify import verify
from tidewheel.checkpoints import CheckpointId, Manifest, StreamCheckpoints
from tidewheel.errors import CorruptError, NotFound, StateError

SHARDS = 4 * PAGE_SHARDS
_fresh = itertools.count()

parts_of_a_shard = st.builds(
    ShardParts,
    st.none() | st.integers(0, 2).map(lambda n: part(n)),
    st.lists(st.integers(3, 9), unique=True, max_size=4).map(lambda found: tuple(map(part, sorted(found)))),
)


def part(sequence: int) -> PartRef:
    return PartRef(FileRef(state_file(sequence, "r", 0, 0, "delta"), 1, sequence), sequence, 1, 1)


def store():
    return open_store(f"memory:pages-{next(_fresh)}")


def manifest(sequence: int, shards, **fields) -> Manifest:
    named = {"run": "r", **fields}
    return Manifest(CheckpointId("job", sequence, 0), n_shards=SHARDS, shards=shards, **named)


@given(st.lists(st.integers(0, 100)), st.integers(0, 300))
def test_pages_are_written_until_the_patches_are_within_the_bound(sizes, bound):
    chosen = pages_to_write(sizes, bound)
    stays = sum(size for place, size in enumerate(sizes) if place not in chosen)
    assert stays <= bound
    assert not chosen or stays + sizes[chosen[-1]] > bound


@given(st.none() | parts_of_a_shard, st.none() | parts_of_a_shard)
def test_a_change_gives_the_parts_that_it_was_made_of(old, parts):
    assert changed(change_of(1, old, parts), old) == parts


@given(st.data())
@settings(max_examples=40)
def test_commits_and_pages_equal_a_plain_dict_also_when_read_again(data):
    place = store()
    checkpoints = StreamCheckpoints(place, "job", inline_bytes=data.draw(st.sampled_from([0, 300, 1 << 20])))
    plain: dict[int, ShardParts] = {}
    kept = []
    head = checkpoints.commit(manifest(1, {}))
    for sequence in range(2, 2 + data.draw(st.integers(1, 6))):
        changes = data.draw(st.dictionaries(st.integers(0, SHARDS - 1), st.none() | parts_of_a_shard, max_size=6))
        plain.update(changes)
        plain = {shard: parts for shard, parts in plain.items() if parts is not None}
        # As a batch gives it, or as a plain mapping of all shards.
        shards = head.shards.with_parts(changes) if data.draw(st.booleans()) else plain
        head = checkpoints.commit(manifest(sequence, shards, parent=sequence - 1))
        kept.append(dict(plain))
        assert head.shards == plain
    assert pickle.loads(pickle.dumps(head.shards)) == plain
    read_again = StreamCheckpoints(place, "job").list()[1:]
    for expected, state in zip(kept, read_again, strict=True):
        assert dict(state.shards) == expected
        assert len(state.shards) == len(expected)
        assert list(state.shards.of_task(3, 5)) == [shard for shard in sorted(expected) if shard % 5 == 3]
        assert encode(decode(encode(state), load_page=checkpoints.load_page)) == encode(state)
        assert state.files() == {file for parts in expected.values() for file in parts.files()}


@pytest.fixture
def paged():
    """A job whose every group of shards is on a page; the last commit changed one shard."""
    place = store()
    checkpoints = StreamCheckpoints(place, "job", inline_bytes=0)
    head = checkpoints.commit(manifest(1, {shard: ShardParts(None, (part(1),)) for shard in range(SHARDS)}))
    shards = head.shards.with_parts({5: ShardParts(None, (part(1), part(2)))})
    return place, checkpoints, head, checkpoints.commit(manifest(2, shards, parent=1))


def test_a_small_job_has_no_pages_and_a_commit_is_one_object():
    place = store()
    shards = {shard: ShardParts(None, tuple(map(part, range(1, 13)))) for shard in range(1024)}
    StreamCheckpoints(place, "job").commit(Manifest(CheckpointId("job", 1), n_shards=1024, shards=shards))
    assert [entry.path.split("/")[1] for entry in place.list()] == ["chain"]


def test_a_commit_writes_pages_of_changed_groups_and_shares_the_others(paged):
    _, _, first, second = paged
    assert len(first.pages()) == len(second.pages()) == page_count(SHARDS)
    assert len(second.pages() - first.pages()) == 1


def test_a_task_reads_the_pages_of_its_own_shards_only(paged):
    _, checkpoints, _, second = paged
    read = []

    def load(ref):
        read.append(ref)
        return checkpoints.load_page(ref)

    state = decode(encode(second), load_page=load)
    shards = list(state.shards.of_task(1, page_count(SHARDS)))
    assert len(shards) == PAGE_SHARDS
    assert {state.shards[shard].deltas for shard in shards} == {(part(1),), (part(1), part(2))}
    assert read == [second.shards.groups[1].page]


def test_a_page_that_is_missing_is_an_error_that_names_it(paged):
    place, checkpoints, _, second = paged
    lost = second.shards.groups[2].page
    checkpoints.folder.delete(lost.name)
    state = decode(encode(second), load_page=PageReader(_elsewhere(checkpoints.folder)))
    assert state.shards[1] == second.shards[1]
    with pytest.raises(NotFound, match=f"page {lost.name} at .* is missing"):
        state.shards[2]
    found = verify(place, StreamCheckpoints(place, "job"))
    assert [problem.what for problem in found.problems if "page" in problem.what] == [lost.name]


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:30] + b"?" + data[31:], lambda _: b""])
def test_a_page_with_other_bytes_is_an_error_that_names_it(paged, damage):
    place, checkpoints, _, second = paged
    spoilt = second.shards.groups[2].page
    checkpoints.folder.write(spoilt.name, damage(checkpoints.folder.read(spoilt.name)))
    state = decode(encode(second), load_page=PageReader(_elsewhere(checkpoints.folder)))
    with pytest.raises(CorruptError, match=f"page {spoilt.name}"):
        state.shards[2]
    found = verify(place, StreamCheckpoints(place, "job"))
    assert spoilt.name in [problem.what for problem in found.problems]


def test_without_a_store_a_page_cannot_be_read(paged):
    _, _, _, second = paged
    with pytest.raises(StateError, match=r"refers to the page .*without a store"):
        decode(encode(second)).shards[1]


def test_collection_keeps_the_pages_of_kept_checkpoints_and_savepoints(paged):
    place, checkpoints, first, second = paged
    make_savepoint(checkpoints, "before", 1)
    third = checkpoints.commit(manifest(3, second.shards.with_parts({5: None}), parent=2))
    fourth = checkpoints.commit(manifest(4, third.shards.with_parts({5: ShardParts(None, (part(4),))}), parent=3))
    checkpoints.retain(1)
    now = 10**20
    assert set(collect(checkpoints, grace=0, now=now).files) == {
        page.name for page in (second.pages() | third.pages()) - first.pages() - fourth.pages()
    }
    assert dict(find(StreamCheckpoints(place, "job"), "before").shards) == dict(first.shards)
    checkpoints.pins.drop("before")
    assert set(collect(checkpoints, grace=0, now=now).files) == {page.name for page in first.pages() - fourth.pages()}
    assert dict(StreamCheckpoints(place, "job").latest().shards) == dict(fourth.shards)


def test_a_restore_and_a_fork_have_the_shards_of_their_checkpoint(paged):
    place, checkpoints, first, second = paged
    make_savepoint(checkpoints, "here", 2)
    back = restore(checkpoints, 1)
    assert dict(StreamCheckpoints(place, "job").load(back.sequence).shards) == dict(first.shards)
    fork(place, "job", "here", "copy")
    copied = StreamCheckpoints(place, "copy").latest().shards
    assert {shard: len(parts.deltas) for shard, parts in copied.items()} == {
        shard: len(parts.deltas) for shard, parts in second.shards.items()
    }
    assert copied[5].deltas[0].file.name == f"/job/{part(1).file.name}"


def test_a_group_that_has_lost_all_its_shards_needs_no_page(paged):
    _, checkpoints, _, second = paged
    gone = dict.fromkeys(range(0, SHARDS, page_count(SHARDS)))
    third = checkpoints.commit(manifest(3, second.shards.with_parts(gone), parent=2))
    assert len(third.pages()) == page_count(SHARDS) - 1


@pytest.mark.parametrize("hit", [1, 3])
def test_a_commit_that_dies_between_its_pages_leaves_only_garbage(paged, hit):
    place, checkpoints, _, second = paged
    shards = second.shards.with_parts({shard: ShardParts(None, (part(3),)) for shard in range(8)})
    faults.arm(f"commit.page-written=raise@{hit}")
    try:
        with pytest.raises(faults.InjectedFault):
            checkpoints.commit(manifest(3, shards, parent=2))
    finally:
        faults.arm("")
    assert StreamCheckpoints(place, "job").latest() == second
    third = checkpoints.commit(manifest(3, second.shards, parent=2, run="other"))
    fourth = checkpoints.commit(manifest(4, third.shards, parent=3, run="other"))
    collect(checkpoints, keep=1, grace=0, now=10**20)
    there = {entry.path for entry in checkpoints.folder.list("state")}
    assert there == {page.name for page in fourth.pages()}


def _elsewhere(folder):
    """The same folder by another URL: nothing of it is remembered."""

    class Elsewhere:
        url = f"{folder.url}-elsewhere"
        read = staticmethod(folder.read)

    return Elsewhere()


def test_a_program_that_slept_saves_without_pages_deleted_meanwhile():
    place = store()
    slept, other = (StreamCheckpoints(place, "job", keep=1, inline_bytes=0) for _ in range(2))
    slept.save(manifest(10, {0: ShardParts(part(1))}))
    other.save(manifest(20, {0: ShardParts(part(2))}))
    collect(other, grace=0, now=10**19)
    slept.save(manifest(30, {0: ShardParts(part(1))}))
    again = StreamCheckpoints(place, "job").latest()
    assert dict(again.shards) == {0: ShardParts(part(1))}
    PageReader._held.clear()
    assert dict(StreamCheckpoints(place, "job").latest().shards) == {0: ShardParts(part(1))}


def test_a_collection_continues_if_a_listed_checkpoint_is_deleted(monkeypatch):
    place = store()
    checkpoints = StreamCheckpoints(place, "job", inline_bytes=0)
    for sequence in range(1, 5):
        checkpoints.commit(manifest(sequence, {0: ShardParts(part(sequence))}, parent=sequence - 1 or None))
    mine, other = StreamCheckpoints(place, "job"), StreamCheckpoints(place, "job")
    listed = mine.list

    def listed_and_then(*_):
        monkeypatch.undo()
        found = listed()
        collect(other, grace=0, now=10**19, keep=1)
        PageReader._held.clear()
        return found

    monkeypatch.setattr(mine, "list", listed_and_then)
    collect(mine, grace=0, now=10**19)
    assert dict(StreamCheckpoints(place, "job").latest().shards) == {0: ShardParts(part(4))}


def test_nothing_is_collected_while_a_kept_checkpoint_lacks_its_page():
    place = store()
    checkpoints = StreamCheckpoints(place, "job", inline_bytes=0)
    checkpoints.folder.create(state_file(0, "gone", 0, 0, "delta"), b"x")
    head = checkpoints.commit(manifest(1, {0: ShardParts(part(1))}))
    checkpoints.folder.delete(next(iter(head.pages())).name)
    PageReader._held.clear()
    with pytest.raises(NotFound, match="page"):
        collect(StreamCheckpoints(place, "job"), grace=0, now=10**19)
    assert [entry.path for entry in checkpoints.folder.list("state")] == [state_file(0, "gone", 0, 0, "delta")]


def test_a_job_whose_newest_page_is_damaged_can_be_restored():
    place = store()
    checkpoints = StreamCheckpoints(place, "job", inline_bytes=0)
    checkpoints.commit(manifest(1, {0: ShardParts(part(1))}))
    head = checkpoints.commit(manifest(2, {0: ShardParts(part(2))}, parent=1))
    checkpoints.folder.write(next(iter(head.pages())).name, b"damaged")
    PageReader._held.clear()
    restore(StreamCheckpoints(place, "job"), 1)
    assert dict(StreamCheckpoints(place, "job").latest().shards) == {0: ShardParts(part(1))}


@pytest.mark.parametrize("at", [None, 1])
def test_a_reader_of_a_checkpoint_without_its_page_raises_soon(at):
    place = store()
    checkpoints = StreamCheckpoints(place, "job", inline_bytes=0)
    head = checkpoints.commit(manifest(1, {0: ShardParts(part(1))}))
    checkpoints.folder.delete(next(iter(head.pages())).name)
    PageReader._held.clear()
    with pytest.raises(NotFound, match="page"):
        hold(StreamCheckpoints(place, "job"), at)


@pytest.mark.parametrize("on_page", [True, False])
def test_a_shard_in_a_group_of_others_is_refused_at_reading(on_page):
    place = store()
    checkpoints = StreamCheckpoints(place, "job", inline_bytes=0 if on_page else 1 << 20)
    many = tuple(map(part, range(2, 2000)))
    right = checkpoints.commit(manifest(1, {0: ShardParts(None, many)})).shards
    wrong = ShardMap([right.groups[1], right.groups[0], *right.groups[2:]])
    data = encode(manifest(2, wrong))
    with pytest.raises(CorruptError, match="group"):
        dict(decode(data, load_page=PageReader(checkpoints.folder)).shards)


def test_a_page_with_a_shard_twice_is_refused():
    data = seal(pages.MAGIC, pages.VERSION, msgspec.msgpack.encode([(0, ShardParts()), (0, ShardParts(part(1)))]))
    with pytest.raises(CorruptError, match="twice"):
        pages.StoredPage(data, FileRef("p", len(data), xxh64_intdigest(data)), "here")


def test_a_checkpoint_without_any_group_of_shards_is_refused():
    with pytest.raises(CorruptError, match="group"):
        decode(encode(manifest(1, ShardMap([]))))
