"""Cells as chains: writers that sleep too long, housekeeping that fails, folders of names."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.waiting import IN_TIME, eventually
from tidewheel import cells
from tidewheel._cells.backends.chained import folder_of, path_of
from tidewheel._storage.base import check_path
from tidewheel._storage.chain import Chain
from tidewheel.cells import Offline
from tidewheel.errors import ConfigError, StorageError

NAMES = st.text(st.characters(categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=20)


@given(NAMES.filter(lambda name: "/" not in name), NAMES)
def test_every_name_has_its_own_folder_and_is_found_again(namespace, name):
    folder = check_path(folder_of(f"{namespace}/{name}"))
    assert folder.count("/") == 1
    assert path_of(folder) == f"{namespace}/{name}"


@pytest.fixture
def pair(tmp_path):
    with cells.open(str(tmp_path)) as one, cells.open(str(tmp_path)) as two:
        yield one.writer("x", int), two.writer("x", int)


def test_a_writer_that_slept_through_a_trim_is_refused_and_sees_the_value(pair):
    late, other = pair
    seen = late.write(0)
    held = late._held
    for number in range(100):
        version = other.write(number)
    late.when.reaches(version, timeout=IN_TIME)
    late._held = held
    assert late.compare_exchange_at(seen, -1) == (False, version, 99)
    late._held = held
    assert late.write(5) == version + 1


def test_a_writer_that_slept_before_its_check_raises_in_doubt(pair, monkeypatch):
    late, other = pair
    late.write(0)

    def sleep(_):
        monkeypatch.undo()
        other.refresh()
        for number in range(80):
            other.write(number)

    monkeypatch.setattr("tidewheel._storage.chain.faults.point", sleep)
    with pytest.raises(Offline, match="whether this write happened is not known") as caught:
        late.write(-1)
    assert caught.value.maybe
    assert caught.value.value == -1


def test_housekeeping_that_fails_is_no_failure_of_the_write(pair, monkeypatch):
    def fail(*_):
        raise StorageError("no")

    monkeypatch.setattr(Chain, "trim", fail)
    writer, _ = pair
    assert [writer.write(number) for number in range(70)] == list(range(1, 71))


def test_a_failed_append_is_in_doubt(pair, monkeypatch):
    def fail(*_):
        raise StorageError("the answer was lost")

    writer, _ = pair
    monkeypatch.setattr(Chain, "append", fail)
    with pytest.raises(Offline, match="the answer was lost") as caught:
        writer.write(1)
    assert caught.value.maybe


def test_other_files_in_the_place_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "default" / "x").mkdir(parents=True)
    (tmp_path / "default" / "x" / "notes.rec").write_text("mine")
    with cells.open(str(tmp_path)) as connection:
        assert connection.names() == []
        assert connection.writer("x", int).write(1) == 1
        assert connection.names() == ["x"]


def test_a_poll_interval_must_be_a_number():
    with pytest.raises(ConfigError, match="must be a number of seconds"):
        cells.open("s3://bucket/x?poll_s=often")


def test_object_stores_are_followed_by_one_listing_for_all_cells(seaweedfs):
    with cells.open(seaweedfs.url(uuid.uuid4().hex) + "&poll_s=0.05") as connection:
        opened = [connection.writer(f"x{number}", int) for number in range(5)]
        backend, listings, loads = connection._backend, [], []
        real = backend._numbers
        backend._numbers = lambda: (listings.append(1), real())[1]
        backend.load = lambda *_: loads.append(1)
        eventually(lambda: len(listings) >= 3)
        assert not loads
        assert len(opened) == 5


def test_refused_credentials_are_reported(seaweedfs, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(cells.AccessRefused, match="the credentials"):
        cells.open(seaweedfs.url(uuid.uuid4().hex))
