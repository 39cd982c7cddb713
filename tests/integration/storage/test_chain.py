from __future__ import annotations

import contextlib
import threading
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel._core import faults
from tidewheel._storage import open_store
from tidewheel._storage.chain import Chain, ChainRecord, TrimmedError
from tidewheel.errors import FencedError, NotFound, StorageError


@pytest.fixture(params=["memory", "file", "s3"])
def store(request, tmp_path):
    if request.param == "s3":
        return open_store(request.getfixturevalue("seaweedfs").url(str(uuid.uuid4())))
    return open_store(f"memory:{uuid.uuid4()}" if request.param == "memory" else str(tmp_path))


def begun(store, upto, keep_from=1):
    chain = Chain(store, "chain")
    for number in range(1, upto + 1):
        assert chain.append(number, b"%d" % number)
    chain.trim(keep_from)
    return chain


def test_a_chain_never_begun(store):
    chain = Chain(store, "chain")
    assert chain.numbers() == []
    assert chain.head() is None
    assert chain.head(hint=0) is None
    assert chain.trim(5) == []
    with pytest.raises(NotFound):
        chain.read(1)


def test_records_are_in_the_order_of_their_numbers(store):
    chain = begun(store, 12)
    assert chain.numbers() == list(range(1, 13))
    assert chain.head() == ChainRecord(12, b"12")
    assert chain.read(3) == b"3"


def test_names_sort_as_numbers_do(store):
    begun(store, 1)
    assert [entry.path for entry in store.list()] == ["chain/00000000000000000001.rec"]


def test_the_second_writer_of_a_number_loses(store):
    chain = begun(store, 1)
    other = Chain(store, "chain")
    assert other.append(2, b"theirs")
    assert not chain.append(2, b"mine")
    assert other.append(2, b"theirs"), "a repeated try that had won"


def test_of_many_writers_one_appends_each_number(store):
    wins = []
    barrier = threading.Barrier(4)

    def run(writer):
        chain = Chain(store, "chain")
        barrier.wait()
        for number in range(1, 11):
            if chain.append(number, b"%d by %d" % (number, writer)):
                wins.append(number)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(wins) == list(range(1, 11))


def test_trim_never_removes_the_newest(store):
    chain = begun(store, 5)
    assert chain.trim(100) == [1, 2, 3, 4]
    assert chain.numbers() == [5]
    assert chain.trim(100) == []


def test_trim_goes_upward_so_that_a_crash_leaves_an_unbroken_run(store, monkeypatch):
    chain = begun(store, 5)
    order = []
    real = type(store).delete
    monkeypatch.setattr(type(store), "delete", lambda self, path: (order.append(path), real(self, path))[1])
    chain.trim(5)
    assert order == sorted(order)
    assert len(order) == 2, "the records 1 and 4 are emptied, not removed"


def test_a_removed_record_is_not_found_and_cannot_be_made_again(store):
    chain = begun(store, 5, keep_from=3)
    for number in (1, 2):
        with pytest.raises(NotFound):
            chain.read(number)
    assert not Chain(store, "chain").append(1, b"begun anew by one who saw an empty chain")


def test_a_late_writer_below_the_run_is_fenced_and_leaves_nothing(store):
    begun(store, 9, keep_from=7)
    late = Chain(store, "chain")
    with pytest.raises(TrimmedError, match="stands at 9"):
        late.append(4, b"late")
    assert late.numbers() == [7, 8, 9]
    assert len(store.list("chain")) == 5, "7, 8, 9 and the emptied 1 and 6"


def test_a_late_writer_s_record_is_never_next_to_the_run(store, monkeypatch):
    """Its writer is killed before it looks back. In the middle of a trim, its record must not extend the run either."""
    chain, late = begun(store, 9), store.at("chain")
    seen = []
    real = type(store).delete

    def delete(self, path):
        real(self, path)
        late.create(path, b"late")
        seen.append(Chain(store, "chain").numbers())

    with monkeypatch.context() as patching:
        patching.setattr(type(store), "delete", delete)
        chain.trim(7)
    assert seen == [[7, 8, 9]] * 4
    assert not late.create(f"{6:020}.rec", b"late")
    assert chain.numbers() == [7, 8, 9]
    chain.trim(9)
    assert [int(entry.path[:20]) for entry in late.list()] == [1, 8, 9], "what late writers left is removed too"


def test_a_late_writer_is_not_fooled_by_the_rest_of_another_late_one(store):
    """The other was killed after creating record 3; its bytes are not those known here as record 3."""
    late = Chain(store, "chain")
    for number in (1, 2, 3):
        late.append(number, b"%d" % number)
    rest = Chain(store, "chain")
    for number in range(4, 10):
        rest.append(number, b"%d" % number)
    rest.trim(7)
    store.at("chain").create(f"{3:020}.rec", b"of a killed writer")
    with pytest.raises(TrimmedError):
        late.append(4, b"late")
    assert rest.numbers() == [7, 8, 9]
    assert rest.head() == ChainRecord(9, b"9")


def test_a_record_that_is_newest_counts_although_its_base_was_trimmed(store, monkeypatch):
    chain = begun(store, 3)
    other = Chain(store, "chain")
    monkeypatch.setattr("tidewheel._storage.chain.faults.point", lambda name: other.trim(100))
    assert chain.append(4, b"4")
    assert chain.numbers() == [4]


def test_the_newest_record_stays_valid_while_a_trim_removes_older_ones(store, monkeypatch):
    chain, other = begun(store, 5), Chain(store, "chain")

    def interrupted(name):
        with monkeypatch.context() as patch, contextlib.suppress(StorageError):
            patch.setattr(type(store), "delete", failing)
            other.trim(6)

    def failing(self, path):
        raise StorageError("the store does not answer")

    monkeypatch.setattr("tidewheel._storage.chain.faults.point", interrupted)
    assert chain.append(6, b"6")
    monkeypatch.undo()
    assert other.head() == ChainRecord(6, b"6")
    other.trim(6)
    assert other.numbers() == [6]


def test_a_writer_that_cannot_know_if_others_built_on_its_record_is_fenced(store, monkeypatch):
    chain, other = begun(store, 3), Chain(store, "chain")

    def overtaken(name):
        monkeypatch.undo()
        other.append(5, b"5")
        other.trim(4)

    monkeypatch.setattr("tidewheel._storage.chain.faults.point", overtaken)
    with pytest.raises(FencedError, match="others have gone on to 5") as caught:
        chain.append(4, b"4")
    assert not isinstance(caught.value, TrimmedError)
    assert other.read(4) == b"4", "it may have been built on, so it stays"


def test_a_chain_may_begin_at_any_number(store):
    chain = Chain(store, "chain")
    assert chain.begin(7, b"7", b"another chain")
    assert chain.append(8, b"8")
    assert chain.numbers() == [7, 8]


def test_a_number_left_out_is_refused_loudly(store):
    chain = begun(store, 3)
    with pytest.raises(FencedError, match="which stands at 3"):
        chain.append(5, b"5")
    assert Chain(store, "chain").numbers() == [1, 2, 3]


def test_a_hint_saves_the_listing(store, monkeypatch):
    chain = begun(store, 5)
    monkeypatch.setattr(type(store), "list", lambda *_: pytest.fail("listed"))
    assert chain.head(hint=5) == ChainRecord(5, b"5")
    assert chain.head(hint=2) == ChainRecord(5, b"5")
    assert chain.head(hint=0) == ChainRecord(5, b"5")


def test_a_hint_below_the_run_falls_back_to_a_listing(store):
    begun(store, 9, keep_from=7)
    for hint in range(10):
        assert Chain(store, "chain").head(hint=hint) == ChainRecord(9, b"9")


def test_a_hint_is_not_fooled_by_a_late_writer_s_record(store):
    reader = Chain(store, "chain")
    for number in (1, 2, 3):
        reader.append(number, b"%d" % number)
    rest = Chain(store, "chain")
    for number in range(4, 10):
        rest.append(number, b"%d" % number)
    rest.trim(7)
    for ghost in (3, 4):
        store.at("chain").create(f"{ghost:020}.rec", b"of a killed writer")
        assert reader.head(hint=3) == ChainRecord(9, b"9")
        reader._seen = (3, reader._seen[1])


def test_other_files_in_the_folder_are_no_records(store):
    chain = begun(store, 2)
    store.write("chain/notes.txt", b"x")
    store.write("chain/pins/00000000000000000009.rec", b"x")
    assert chain.numbers() == [1, 2]


@pytest.mark.parametrize(("number", "data"), [(0, b"x"), (-1, b"x"), (1, b"")])
def test_refuses_numbers_below_one_and_empty_records(store, number, data):
    with pytest.raises(StorageError, match="start at 1 and are not empty"):
        Chain(store, "chain").append(number, data)


def test_a_removed_chain_leaves_nothing_and_fences_paused_writers(store):
    chain, late = begun(store, 6, keep_from=3), Chain(store, "chain")
    assert late.head() == ChainRecord(6, b"6")
    assert chain.append(7, b"the last")
    chain.remove()
    chain.remove()
    assert store.list() == []
    with pytest.raises(TrimmedError, match="it is over, and removed"):
        late.append(7, b"late")
    assert store.list() == []
    assert late.head(hint=6) is None


@given(st.data())
def test_the_remains_of_a_removal_fence_every_late_writer(data):
    """A removal is broken off at any step, a writer comes with any base, and the removal is finished."""
    store = open_store(f"memory:{uuid.uuid4()}")
    last = data.draw(st.integers(2, 6), label="last")
    chain = begun(store, last, keep_from=data.draw(st.integers(1, last), label="kept"))
    # It slept since it had seen this record, and the last was written after that.
    seen = data.draw(st.integers(1, last - 1), label="seen")
    late = Chain(store, "chain")
    late._note(ChainRecord(seen, b"%d" % seen))
    left = data.draw(st.integers(0, last), label="steps")
    faults.arm(f"chain.removing=raise@{left}")
    try:
        with contextlib.suppress(faults.InjectedFault):
            chain.remove()
    finally:
        faults.arm("")
    with contextlib.suppress(FencedError):
        assert not late.append(seen + 1, b"late")
    chain.remove()
    assert store.list() == []


@given(st.lists(st.one_of(st.just("append"), st.integers(0, 12)), max_size=30), st.integers(0, 12))
def test_remaining_records_are_contiguous_and_end_at_the_head(steps, hint):
    chain = Chain(open_store(f"memory:{uuid.uuid4()}"), "c")
    newest = oldest = 0
    for step in steps:
        if step == "append":
            newest += 1
            oldest = oldest or 1
            assert chain.append(newest, b"%d" % newest)
        else:
            removed = chain.trim(step)
            kept = min(max(oldest, step), newest)
            assert removed == (list(range(oldest, kept)) if newest else [])
            oldest = kept
    assert chain.numbers() == (list(range(oldest, newest + 1)) if newest else [])
    expected = ChainRecord(newest, b"%d" % newest) if newest else None
    assert chain.head() == expected
    assert chain.head(hint=min(hint, newest)) == expected
