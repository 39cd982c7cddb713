import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel._checkpoint import names
from tidewheel._storage.base import check_path
from tidewheel.checkpoints import CheckpointStore
from tidewheel.errors import ConfigError

tokens = st.text("abcXYZ019_.", min_size=1, max_size=8)
small = st.integers(0, 10**6)
STATE_FILE = re.compile(r"state/(\d{20})-([^/-]+)-(\d+)-(\d+)(?:\.([1-9]\d*))?\.(delta|snap|run)")


@given(st.text(min_size=1, max_size=16))
def test_every_stream_has_its_own_folder_that_every_store_accepts(stream):
    folder = names.folder(stream)
    assert names.stream_of(folder) == stream
    assert check_path(folder) == folder
    assert "/" not in folder
    assert not folder.startswith(".")


@pytest.mark.parametrize("stream", ["", "x" * 201, "ü" * 40])
def test_a_stream_name_that_cannot_be_a_folder_is_refused(stream):
    with pytest.raises(ConfigError, match="cannot be a folder"):
        names.folder(stream)


def test_a_stream_name_that_is_not_unicode_is_refused():
    with pytest.raises(ConfigError, match="not valid Unicode"):
        names.folder("\ud800")


@given(st.integers(0, 10**20 - 1), tokens, small, small, st.sampled_from(["delta", "snap"]), small)
def test_the_name_of_a_state_file_has_all_parts_so_that_no_other_file_has_it(
    sequence, run, task, attempt, suffix, place
):
    name = names.state_file(sequence, run, task, attempt, suffix, place)
    assert names.sequence_of(name) == sequence
    parts = STATE_FILE.fullmatch(name).groups("0")
    assert parts == (f"{sequence:020}", run, str(task), str(attempt), str(place), suffix)


@given(st.integers(0, 10**20 - 1), st.integers(0, 10**20 - 1))
def test_state_files_list_in_the_order_of_their_sequences(one, other):
    first, second = (names.state_file(sequence, "r", 0, 0, "delta") for sequence in (one, other))
    assert (first < second) == (one < other)


def test_the_name_of_a_staged_file_has_its_sequence():
    assert names.sequence_of(names.staged_file(12, "r", 1, 0, "out/part.arrow")) == 12


@pytest.mark.parametrize(
    "name",
    [
        "chain/00000000000000000001.rec",
        "pins/00000000000000000001-x.pin",
        "state/1-r-0-0.delta",
        "state/sub/00000000000000000001-r-0-0.delta",
        "state/00000000000000000001",
        "00000000000000000001-r-0-0.delta",
        "/other/state/00000000000000000001-r-0-0.delta",
        "",
    ],
)
def test_other_names_have_no_sequence(name):
    assert names.sequence_of(name) is None


@pytest.mark.parametrize(
    "arguments",
    [(-1, "r", 0, 0), (0, "a-b", 0, 0), (0, "", 0, 0), (0, "a/b", 0, 0), (0, "r", -1, 0), (0, "r", 0, -1)],
)
def test_parts_that_would_make_a_name_ambiguous_are_refused(arguments):
    with pytest.raises(ConfigError):
        names.state_file(*arguments, "delta")


def test_a_shared_name_means_the_same_file_to_every_job():
    name = names.state_file(1, "r", 0, 0, "snap")
    assert names.path("copy", names.shared("eu/orders", name)) == names.path("eu/orders", name)
    assert names.shared("copy", names.shared("orders", name)) == names.shared("orders", name)


@pytest.mark.parametrize("stray", ["=FF", "lost+found", "=2e", "=41", ".hidden", "x\x1b[2J", "\udcff", "a" * 300])
def test_a_folder_of_no_stream_is_skipped(stray, tmp_path):
    assert names.stream_of(stray) is None
    if stray.isascii() and len(stray) < 255:
        (tmp_path / stray / "chain").mkdir(parents=True)
        (tmp_path / "orders" / "chain").mkdir(parents=True)
        assert list(CheckpointStore.open(f"file://{tmp_path}").folders()) == ["orders"]
