import itertools

import pytest
from xxhash import xxh64_intdigest

from support.internals import faults, open_store
from tidewheel._checkpoint.pins import pin
from tidewheel._storage.memory import MemoryStore
from tidewheel.checkpoints import CheckpointId, CheckpointStore, Manifest, StreamCheckpoints
from tidewheel.errors import ConfigError, CorruptError, FencedError, NotFound, StateError

_fresh = itertools.count()


@pytest.fixture
def url() -> str:
    return f"memory:checkpoint-store-{next(_fresh)}"


def job(url: str, **options):
    """The job's checkpoints as a process of its own would open them."""
    return CheckpointStore.open(url, **options).of("job")


def state(sequence: int, **fields) -> Manifest:
    return Manifest(CheckpointId("job", sequence, created_at=sequence), **fields)


def commit_up_to(checkpoints, newest: int, run: str = "A") -> None:
    start = 0 if checkpoints.latest() is None else checkpoints.latest().sequence
    for sequence in range(start + 1, newest + 1):
        checkpoints.commit(state(sequence, run=run))


def test_commits_are_numbered_from_1_without_gaps(url):
    checkpoints = job(url)
    with pytest.raises(StateError, match="so the next is 1"):
        checkpoints.commit(state(2))
    commit_up_to(checkpoints, 2)
    with pytest.raises(StateError, match="the newest is 2, so the next is 3"):
        checkpoints.commit(state(4))
    assert job(url).sequences() == [1, 2]


def test_a_commit_is_seen_by_others_at_once(url):
    writer, reader = job(url), job(url)
    assert reader.latest() is None
    for sequence in (1, 2, 3):
        writer.commit(state(sequence))
        assert reader.latest() == state(sequence)
    assert reader.head == state(3)


def test_the_head_is_remembered_and_costs_no_access(url, monkeypatch):
    checkpoints = job(url)
    commit_up_to(checkpoints, 3)
    for access in ("read", "list", "create"):
        monkeypatch.setattr(MemoryStore, access, _never)
    assert checkpoints.head == state(3, run="A")


def test_the_heads_checksum_is_that_of_its_record_as_stored(url):
    checkpoints = job(url)
    assert checkpoints.head_checksum is None
    commit_up_to(checkpoints, 2)
    stored = xxh64_intdigest(checkpoints.folder.read("chain/00000000000000000002.rec"))
    reader = job(url)
    reader.latest()
    assert checkpoints.head_checksum == reader.head_checksum == stored


def test_a_commit_in_steady_state_lists_nothing(url, monkeypatch):
    checkpoints = job(url)
    commit_up_to(checkpoints, 1)
    monkeypatch.setattr(MemoryStore, "list", _never)
    checkpoints.commit(state(2, run="A"))
    assert checkpoints.latest() == state(2, run="A")


def test_committing_the_same_again_is_fine(url):
    checkpoints = job(url)
    commit_up_to(checkpoints, 2)
    checkpoints.commit(state(2, run="A"))
    job(url).commit(state(2, run="A"))
    assert checkpoints.sequences() == [1, 2]


def test_a_commit_that_was_made_but_not_heard_of_is_found_made(url):
    """The driver dies, or gives up on a put, after the record was created; its next try is the same bytes."""
    checkpoints = job(url)
    commit_up_to(checkpoints, 1)
    faults.arm("chain.created=raise")
    try:
        with pytest.raises(faults.InjectedFault):
            checkpoints.commit(state(2, run="A"))
    finally:
        faults.arm("")
    checkpoints.commit(state(2, run="A"))
    assert checkpoints.head == job(url).latest() == state(2, run="A")


def test_a_run_whose_number_was_taken_is_fenced_by_name(url):
    mine, theirs = job(url), job(url)
    commit_up_to(mine, 1)
    theirs.latest()
    theirs.commit(state(2, run="B", kind="claim", host="h2"))
    with pytest.raises(FencedError, match=r"run A cannot commit checkpoint 2 of 'job'.*run B on h2.*2 \(claim\)"):
        mine.commit(state(2, run="A"))
    assert job(url).load(2).run == "B"


def test_a_run_that_slept_until_its_base_was_trimmed_is_fenced_by_name(url):
    sleeper, other = job(url), job(url)
    commit_up_to(sleeper, 2)
    commit_up_to(other, 9, run="B")
    other.delete_before(9)
    with pytest.raises(FencedError, match=r"run B, which committed 9"):
        sleeper.commit(state(3, run="A"))
    assert job(url).sequences() == [9]


def test_other_content_of_the_same_run_differs_from_a_takeover(url):
    checkpoints = job(url)
    commit_up_to(checkpoints, 2)
    with pytest.raises(StateError, match="already committed checkpoint 2"):
        checkpoints.commit(state(2, run="A", event_count=5))


def test_another_streams_checkpoint_is_refused(url):
    other = Manifest(CheckpointId("other", 1))
    for keep in (job(url).commit, job(url).save):
        with pytest.raises(StateError, match="'other'"):
            keep(other)


def test_a_job_is_refused_on_a_stream_of_saved_checkpoints(url):
    job(url).save(state(10))
    with pytest.raises(StateError, match="give the job another name or state URL"):
        job(url).commit(state(11))


def test_saved_sequences_may_have_gaps_and_start_anywhere(url):
    checkpoints = job(url)
    for sequence in (0, 10, 11, 500):
        checkpoints.save(state(sequence))
    again = job(url)
    assert again.sequences() == [0, 10, 11, 500]
    assert [again.load(sequence).sequence for sequence in (0, 10, 11, 500)] == [0, 10, 11, 500]
    assert again.latest() == state(500)
    for absent in (1, 2, 4, 12, 501):
        with pytest.raises(NotFound, match="4 are kept, from 0 to 500"):
            again.load(absent)


def test_saving_a_new_sequence_below_the_newest_is_refused(url):
    checkpoints = job(url)
    checkpoints.save(state(10))
    with pytest.raises(StateError, match="below the newest, 10"):
        checkpoints.save(state(5))


def test_two_programs_that_save_the_same_stream_take_turns(url):
    one, other = job(url), job(url)
    one.save(state(1))
    other.save(state(2))
    one.save(state(3))
    assert other.sequences() == [1, 2, 3]


def test_load_in_an_empty_stream_raises(url):
    with pytest.raises(NotFound, match="none is kept"):
        job(url).load(1)


def test_retention_keeps_pinned_checkpoints_of_readers_and_later_ones(url):
    checkpoints = job(url)
    commit_up_to(checkpoints, 9)
    checkpoints.pins.create(pin("reader-1", "reader", checkpoints.load(4)))
    assert checkpoints.retain(2) == 3
    assert checkpoints.sequences() == [4, 5, 6, 7, 8, 9]
    checkpoints.pins.drop("reader-1")
    checkpoints.retain(2)
    assert checkpoints.sequences() == [8, 9]


@pytest.mark.parametrize(
    ("now", "kept"), [(19, [1, 2, 3, 4, 5, 6, 7, 8, 9]), (22, [2, 3, 4, 5, 6, 7, 8, 9]), (28, [8, 9]), (1000, [8, 9])]
)
def test_retention_by_age_keeps_young_checkpoints_and_the_newest(url, now, kept):
    checkpoints = StreamCheckpoints(open_store(url), "job", clock=lambda: now)
    for sequence in range(1, 10):
        checkpoints.commit(Manifest(CheckpointId("job", sequence, 10 + sequence), run="A"))
    assert checkpoints.retain(2, age=10) == 9 - len(kept)
    assert checkpoints.sequences() == kept


def test_retention_below_1_is_refused(url):
    with pytest.raises(ConfigError, match="at least 1"):
        job(url).retain(0)


def test_a_damaged_record_is_named_and_never_used(url):
    checkpoints = job(url)
    commit_up_to(checkpoints, 2)
    path = "chain/00000000000000000002.rec"
    data = bytearray(checkpoints.folder.read(path))
    data[40] ^= 1
    checkpoints.folder.write(path, bytes(data))
    with pytest.raises(CorruptError, match=r"record 2 of memory:.*/job/chain.*checksum"):
        job(url).latest()
    assert job(url).load(1).sequence == 1


def test_streams_are_listed_by_name(url):
    store = CheckpointStore.open(url)
    for stream in ("b/1", "a", "ü"):
        store.save(Manifest(CheckpointId(stream, 1)))
    assert CheckpointStore.open(url).streams() == ["a", "b/1", "ü"]


def _never(*_arguments):
    raise AssertionError("this must not touch the store")
