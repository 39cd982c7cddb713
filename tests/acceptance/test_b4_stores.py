"""B4: stores (memory, local folder, S3-compatible) keep the newest k checkpoints of each stream, ascending."""

import itertools
import subprocess
import sys

import pytest

from tidewheel.checkpoints import CheckpointId, CheckpointStore, Manifest
from tidewheel.errors import ConfigError, NotFound, StateError

_fresh = itertools.count()


@pytest.fixture(params=["memory", "file", "s3"])
def url(request, tmp_path) -> str:
    name = f"b4-{next(_fresh)}"
    if request.param == "memory":
        return f"memory:{name}"
    if request.param == "file":
        return f"file://{tmp_path}/{name}"
    return request.getfixturevalue("seaweedfs").url(name)


def checkpoint(sequence: int, stream: str = "s", **fields) -> Manifest:
    return Manifest(CheckpointId(stream, sequence, created_at=1), **fields)


def saved(url: str, *sequences: int, stream: str = "s", keep: int | None = None) -> CheckpointStore:
    store = CheckpointStore.open(url, keep)
    for sequence in sequences:
        store.save(checkpoint(sequence, stream))
    return store


def test_b4_save_latest_list_count(url):
    store = saved(url, 0, 10, 20)
    for view in (store, CheckpointStore.open(url)):
        assert view.latest("s") == checkpoint(20)
        assert [state.sequence for state in view.list("s")] == [0, 10, 20]
        assert view.count("s") == 3
        assert view.load("s", 10) == checkpoint(10)


def test_b4_an_unknown_stream_is_empty(url):
    store = CheckpointStore.open(url)
    assert (store.latest("unknown"), store.list("unknown"), store.count("unknown")) == (None, [], 0)
    with pytest.raises(NotFound):
        store.load("unknown", 1)
    assert store.delete_before("unknown", 9) == 0


def test_b4_delete_before_never_removes_the_newest_checkpoint(url):
    store = saved(url, 0, 10, 20, 30)
    assert store.delete_before("s", 20) == 2
    assert [state.sequence for state in CheckpointStore.open(url).list("s")] == [20, 30]
    assert store.delete_before("s", 1_000) == 1
    assert [state.sequence for state in CheckpointStore.open(url).list("s")] == [30]
    store.save(checkpoint(40))
    assert CheckpointStore.open(url).latest("s") == checkpoint(40)


def test_b4_streams_are_kept_apart(url):
    store = saved(url, 1, 2, 3, stream="stream-a")
    saved(url, 10, 20, 30, stream="stream-b")
    saved(url, 5, stream="stream-a/b")
    store.delete_before("stream-a", 3)
    assert [state.sequence for state in store.list("stream-a")] == [3]
    assert [state.sequence for state in store.list("stream-b")] == [10, 20, 30]
    assert store.latest("stream-a/b") == checkpoint(5, "stream-a/b")
    assert store.streams() == ["stream-a", "stream-a/b", "stream-b"]


def test_b4_saving_the_same_again_is_fine_and_other_content_is_refused(url):
    store = saved(url, 1, 2)
    for sequence in (1, 2):
        store.save(Manifest(CheckpointId("s", sequence, created_at=99)))
        with pytest.raises(StateError, match=rf"checkpoint {sequence} of stream 's'.*\(event_count\)"):
            store.save(checkpoint(sequence, event_count=1))
    assert CheckpointStore.open(url).list("s") == [checkpoint(1), checkpoint(2)]


def test_b4_retention_keeps_the_newest_k(url):
    saved(url, *range(6), keep=3)
    assert [state.sequence for state in CheckpointStore.open(url).list("s")] == [3, 4, 5]


@pytest.mark.parametrize("keep", [0, -1])
def test_b4_k_below_1_is_an_error(keep):
    with pytest.raises(ConfigError, match=f"at least 1, not {keep}"):
        CheckpointStore.open("memory:never", keep=keep)


def test_b4_a_store_keeps_the_checkpoints_of_an_ended_process(tmp_path):
    url = f"file://{tmp_path}"
    program = (
        "import sys\n"
        "from tidewheel.checkpoints import CheckpointId, CheckpointStore, Manifest\n"
        "CheckpointStore.open(sys.argv[1]).save(Manifest(CheckpointId('s', 7)))\n"
    )
    subprocess.run([sys.executable, "-c", program, url], check=True)
    assert CheckpointStore.open(url).latest("s") == checkpoint(7)
