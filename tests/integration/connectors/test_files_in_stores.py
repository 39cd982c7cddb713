"""The files sink in object stores: what holds in a folder holds there, on a real S3 server."""

from __future__ import annotations

import io
import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from servers.stores import SECRET_KEY, running_seaweedfs
from tidewheel import sinks
from tidewheel._core import faults
from tidewheel._storage import open_store
from tidewheel.errors import ConfigError, CorruptError, StateError, StorageError
from tidewheel.sinks import whole_files
from tidewheel.testing.connectors import SinkConformance, SinkHarness

_numbers = itertools.count()


def visible(url):
    return [entry.path for entry in open_store(url).list() if not entry.path.startswith("_tidewheel/")]


def hidden(url):
    return [entry.path.rpartition("/")[2] for entry in open_store(url).list("_tidewheel")]


def rows(url, paths=None):
    store, found = open_store(url), []
    for path in visible(url) if paths is None else paths:
        data = store.read(path)
        if path.endswith("json"):
            found += [json.loads(line) for line in data.splitlines()]
        else:
            found += parquet.read_table(io.BytesIO(data), partitioning=None).to_pylist()
    return found


@pytest.fixture(params=["s3", "memory"])
def url(request):
    if request.param == "memory":
        return f"memory:files-{next(_numbers)}/out"
    return request.getfixturevalue("seaweedfs").url(f"files-{next(_numbers)}/out")


@pytest.fixture
def harness(tmp_path, url, harnessed):
    return harnessed(sinks.files(url), str(tmp_path / "state"))


class _Bucket(SinkHarness):
    secrets = (SECRET_KEY,)

    def __init__(self, url, format):
        self.url, self.format = url, format

    def sink(self):
        return sinks.files(self.url, format=self.format)

    def contents(self):
        return rows(self.url)


class TestConformance(SinkConformance):
    @pytest.fixture(params=["parquet", "json"])
    def harness(self, seaweedfs, request):
        return _Bucket(seaweedfs.url(f"files-{next(_numbers)}"), request.param)


def test_output_is_invisible_until_it_is_published(harness, url):
    token = harness.stage(2, [{"n": 1}], [{"n": 2}], task=3)
    assert visible(url) == []
    harness.publish(2, token)
    assert visible(url) == ["orders~out~00000000000000000002~3-0.parquet"]
    assert rows(url) == [{"n": 1}, {"n": 2}]
    assert hidden(url) == ["published-00000000000000000002"]


def test_partition_by_makes_folders(tmp_path, url, harnessed):
    harness = harnessed(sinks.files(url, format="json", partition_by=["day"]), str(tmp_path / "state"))
    harness.publish(2, harness.stage(2, [{"day": "mo", "n": 1}, {"day": "tu", "n": 2}, {"day": "mo", "n": 3}]))
    assert [path.rpartition("/")[0] for path in visible(url)] == ["day=mo", "day=tu"]
    assert rows(url) == [{"n": 1}, {"n": 3}, {"n": 2}]
    harness.sink.retract("orders", "out", after=1, before=3)
    assert visible(url) == []


def test_a_crash_between_two_files_leaves_an_incomplete_batch(harness, url):
    harness.publish(2, harness.stage(2, [{"n": 1}]))
    tokens = [harness.stage(3, [{"n": task}], task=task) for task in range(3)]
    faults.arm("files.placed=raise@2")
    try:
        with pytest.raises(faults.InjectedFault):
            harness.publish(3, *tokens)
    finally:
        faults.arm("")
    assert len(visible(url)) == 3
    assert rows(url, whole_files(url)) == [{"n": 1}]
    harness.publish(3, *tokens)
    assert len(visible(url)) == 4
    assert whole_files(url) == visible(url)


def test_a_driver_that_was_overtaken_disturbs_nothing(harness, url):
    old = harness.stage(2, [{"n": 1}])
    harness.publish(2, old)
    harness.publish(3, harness.stage(3, [{"n": 2}]))
    for path in visible(url)[:1]:
        open_store(url).delete(path)
    harness.publish(2, old)
    assert rows(url) == [{"n": 2}]


def test_output_of_a_former_job_of_this_name_is_not_claimed(harness):
    harness.publish(9, harness.stage(9, [{"n": 1}]))
    with pytest.raises(StateError, match=r"up to sequence 9, and the job's state is only at 2"):
        harness.publish(2, harness.stage(2, [{"n": 2}], run="r2"))


def test_lost_and_damaged_output_is_reported(harness, url):
    store, token = open_store(url), harness.stage(2, [{"n": 1}])
    (staged,) = [entry.path for entry in store.list("_tidewheel")]
    store.write(staged, b"short")
    with pytest.raises(CorruptError, match="5 are there"):
        harness.publish(2, token)
    store.delete(staged)
    with pytest.raises(StorageError, match=r"output is lost.*orders~out~0+2~0-0\.parquet"):
        harness.publish(2, token)


def test_the_next_publication_removes_files_of_failed_attempts(harness, url):
    harness.stage(2, [{"n": "failed"}])
    harness.publish(2, harness.stage(2, [{"n": "good"}]))
    assert hidden(url) == ["published-00000000000000000002"]
    assert rows(url) == [{"n": "good"}]


def test_a_file_larger_than_a_request(tmp_path, seaweedfs, harnessed):
    url = seaweedfs.url(f"files-{next(_numbers)}")
    harness = harnessed(sinks.files(url, compression="none"), str(tmp_path / "state"))
    text = "".join(map(str, range(200_000)))
    batches = [[{"n": n, "text": f"{n}{text}"}] for n in range(20)]
    harness.publish(2, harness.stage(2, *batches))
    assert open_store(url).list()[-1].size > 12_000_000
    assert [row["n"] for row in rows(url)] == list(range(20))


def test_an_unavailable_or_refusing_store_is_reported_at_the_start(tmp_path, monkeypatch):
    with running_seaweedfs(tmp_path / "weed") as server:
        url = f"{server.url('out')}&retry_s=0.2"
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
        with pytest.raises(ConfigError, match=r"cannot use its folder.*credentials") as refused:
            sinks.files(f"{url}&timeout=5s").start("orders")
        assert "hunter2" not in str(refused.value)
        server.kill()
        with pytest.raises(ConfigError, match=r"cannot use its folder.*does not answer"):
            sinks.files(url).start("orders")


@settings(max_examples=40, deadline=None)
@given(
    tasks=st.lists(st.integers(0, 3), min_size=1, max_size=5),
    steps=st.lists(st.tuples(st.integers(0, 1), st.booleans()), max_size=12),
)
def test_any_interleaving_of_publishes_with_repeats_leaves_each_row_once(harnessed, tasks, steps):
    """Two drivers, of which either may be paused: each publishes committed sequences in order, and repeats at will."""
    url = f"memory:interleaved-{next(_numbers)}"
    harness = harnessed(sinks.files(url, format="json"), f"{url}-state")
    committed: list[list[bytes | None]] = []
    position = [0, 0]
    for driver, advances in [*steps, *[(0, True)] * len(tasks)]:
        # A run goes on to the next sequence only when the one before it is published.
        if len(committed) == max(position) and len(committed) < len(tasks):
            sequence = len(committed) + 1
            numbers = range(tasks[sequence - 1])
            committed.append([harness.stage(sequence, [{"at": f"{sequence}.{task}"}], task=task) for task in numbers])
        at = min(position[driver], len(committed) - 1)
        harness.publish(at + 1, *committed[at])
        position[driver] = max(position[driver], at + advances)
    found = [row["at"] for row in rows(url, whole_files(url))]
    assert sorted(found) == [f"{s}.{task}" for s, count in enumerate(tasks, 1) for task in range(count)]
