"""The contract of every store, tested by the same tests on each."""

from __future__ import annotations

import pickle
import threading
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel._storage import open_store
from tidewheel.errors import NotFound, StorageError


@pytest.fixture(params=["memory", "file", "s3"])
def store(request, tmp_path):
    if request.param == "memory":
        return open_store(f"memory:{uuid.uuid4()}")
    if request.param == "file":
        return open_store(f"{tmp_path}/made by the first write")
    return open_store(request.getfixturevalue("seaweedfs").url(str(uuid.uuid4())))


def test_reads_return_written_objects(store):
    store.write("a/b", b"one")
    store.write("a/b", b"two")
    assert store.read("a/b") == b"two"


def test_absent_is_not_found(store):
    for attempt in (lambda: store.read("a"), lambda: store.read_range("a", 0, 1)):
        with pytest.raises(NotFound, match=r"no a at"):
            attempt()


def test_create_reports_whose_bytes_exist(store):
    assert store.create("a", b"one")
    assert store.create("a", b"one"), "a repeated try that had won"
    assert not store.create("a", b"two")
    assert store.read("a") == b"one"


def test_of_many_creators_one_wins(store):
    won = []
    barrier = threading.Barrier(8)

    def attempt(number):
        barrier.wait()
        if store.create("a", b"%d" % number):
            won.append(number)

    threads = [threading.Thread(target=attempt, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.read("a") == b"%d" % won[0]


def test_a_range_is_exact_or_an_error(store):
    store.write("a", b"0123456789")
    assert store.read_range("a", 3, 4) == b"3456"
    assert store.read_range("a", 10, 0) == b""
    with pytest.raises(StorageError, match=r"ends too early: 4 bytes asked for at 8, 2 found"):
        store.read_range("a", 8, 4)


def test_lists_sorted_at_any_depth_by_whole_parts(store):
    for path in ("b", "a/2", "a/10/x", "ab/1"):
        store.write(path, b"123")
    assert [entry.path for entry in store.list()] == ["a/10/x", "a/2", "ab/1", "b"]
    assert [(entry.path, entry.size) for entry in store.list("a")] == [("a/10/x", 3), ("a/2", 3)]
    assert store.list("nowhere") == []


def test_lists_only_paths_after_a_path(store):
    for path in ("b", "a/2", "a/10/x", "ab/1"):
        store.write(path, b"")
    assert [entry.path for entry in store.list(after="a/2")] == ["ab/1", "b"]
    assert [entry.path for entry in store.list("a", after="a/10/x")] == ["a/2"]
    assert [entry.path for entry in store.list(after="a/3")] == ["ab/1", "b"]
    assert store.list(after="b") == []


def test_names_the_folders_directly_below(store):
    for path in ("b/2/x", "b/1", "a/deep/er/1", "c"):
        store.write(path, b"")
    assert store.folders() == ["a", "b"]
    assert (store.folders("b"), store.folders("a/deep"), store.at("a").folders()) == (["2"], ["er"], ["deep"])
    assert store.folders("nowhere") == []


def test_modified_is_the_time_of_the_write(store):
    store.write("a", b"")
    store.write("b", b"")
    first, second = store.list()
    assert 0 < first.modified <= second.modified


def test_delete_and_create_again(store):
    store.delete("a")
    store.create("a", b"one")
    store.delete("a")
    assert store.list() == []
    assert store.create("a", b"two")


def test_move_replaces_an_existing_object(store):
    store.write("a/1", b"one")
    store.write("b/2", b"two")
    store.move("a/1", "b/2")
    assert [(entry.path, store.read(entry.path)) for entry in store.list()] == [("b/2", b"one")]
    with pytest.raises(NotFound):
        store.move("a/1", "b/2")


def test_rooted_deeper_it_is_the_same_store(store):
    deeper = store.at("a/b")
    deeper.create("c", b"one")
    assert store.read("a/b/c") == b"one"
    assert [entry.path for entry in deeper.list()] == ["c"]
    assert open_store(deeper.url).read("c") == b"one"


def test_pickles_as_its_url(store):
    store.at("x").write("a", b"one")
    assert pickle.loads(pickle.dumps(store.at("x"))).read("a") == b"one"


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "../a", "a/../b", ".", "a\0"])
def test_refuses_paths_that_leave_the_root_or_mean_two_things(store, path):
    for attempt in (store.read, store.delete, store.at, lambda path: store.create(path, b"")):
        with pytest.raises(StorageError, match="is refused"):
            attempt(path)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["create", "write", "delete"]),
            st.sampled_from(["a", "b/1", "b/2"]),
            st.binary(max_size=3),
        )
    )
)
def test_behaves_as_a_dictionary(tmp_path_factory, steps):
    for url in (f"memory:{uuid.uuid4()}", str(tmp_path_factory.mktemp("model"))):
        store, model = open_store(url), {}
        for verb, path, data in steps:
            if verb == "create":
                assert store.create(path, data) == (model.setdefault(path, data) == data)
            elif verb == "write":
                store.write(path, data)
                model[path] = data
            else:
                store.delete(path)
                model.pop(path, None)
        assert {entry.path: store.read(entry.path) for entry in store.list()} == model
