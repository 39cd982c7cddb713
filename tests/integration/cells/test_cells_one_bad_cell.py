"""A cell that cannot be read affects only its own readers, who get an error; all other cells continue."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from support.waiting import IN_TIME, eventually
from tidewheel import cells
from tidewheel._storage.chain import Chain
from tidewheel.cells import Encoding, TicketIssuer, TicketValidator, Unreadable
from tidewheel.errors import ConfigError

SECRET = "s" * 32


@dataclass
class Limits:
    low: int
    high: int


@dataclass
class CheckedLimits:
    low: int
    high: int

    def __post_init__(self):
        assert self.low <= self.high, "low above high"


def opened(place):
    """Return a writer of limits, a reader that checks them, and a writer and a reader of another cell."""
    theirs, ours = place.open(), place.open()
    return (
        theirs.writer("limits", Limits, type_name="Limits"),
        ours.reader("limits", CheckedLimits, type_name="Limits"),
        theirs.writer("other", int),
        ours.reader("other", int),
    )


def test_a_value_that_its_class_refuses_concerns_its_cell_alone(place):
    limits, checked, other, other_reader = opened(place)
    limits.write(Limits(5, 2))
    eventually(lambda: checked.error)
    with pytest.raises(Encoding, match="is not a Limits: AssertionError low above high"):
        checked.read()
    version = other.write(1)
    assert other_reader.when.reaches(version, timeout=IN_TIME).value == 1
    limits.write(Limits(3, 4))
    eventually(lambda: checked.error is None)
    assert checked.read() == CheckedLimits(3, 4)


def test_a_validator_that_fails_concerns_its_cell_alone(place):
    theirs, ours = place.open(), place.open()
    revoked = ours.reader("revoked", list[str])
    validator = TicketValidator(SECRET, audience="t", revoked=lambda ticket: ticket in revoked.read())
    guarded, other_reader = ours.reader("x", int).require_ticket(validator), ours.reader("other", int)
    ticket = TicketIssuer(SECRET, audience="t").issue("n", lifetime="60 s")
    theirs.writer("x", int).present(ticket).write(1)
    eventually(lambda: guarded.error)
    with pytest.raises(Unreadable, match=r"cell default/x at .* cannot be read: TypeError .*NoneType"):
        guarded.read()
    version = theirs.writer("other", int).write(2)
    assert other_reader.when.reaches(version, timeout=IN_TIME).value == 2
    version = theirs.writer("revoked", list[str]).write([])
    revoked.when.reaches(version, timeout=IN_TIME)
    assert guarded.refresh().value == 1


def test_a_writer_refused_by_its_own_class_fails_before_sending(place):
    writer = place.open().writer("x", CheckedLimits)
    with pytest.raises(Encoding, match="AssertionError low above high"):
        writer.write(Limits(2, 1))
    assert writer.version() == 0


def test_a_record_that_cannot_be_loaded_concerns_its_cell_alone(tmp_path, monkeypatch):
    head = Chain.head

    def failing(self, hint=None):
        if self.url.endswith("bad") and not fixed.is_set():
            raise UnicodeError("nobody expected this")
        return head(self, hint)

    fixed = threading.Event()
    with cells.open(str(tmp_path)) as theirs, cells.open(str(tmp_path)) as ours:
        bad, other = ours.reader("bad", int), ours.reader("other", int)
        members = ours.map_reader("members", int)
        writers = [theirs.writer(name, int) for name in ("bad", "other", "members/bad", "members/good")]
        monkeypatch.setattr(Chain, "head", failing)
        versions = [writer.write(1) for writer in writers]
        assert other.when.reaches(versions[1], timeout=IN_TIME).value == 1
        members.when.holds("good", timeout=IN_TIME)
        eventually(lambda: bad.error and members.unreadable)
        with pytest.raises(Unreadable, match="UnicodeError nobody expected this"):
            bad.read()
        with pytest.raises(Unreadable, match="UnicodeError nobody expected this"):
            members["bad"]
        assert dict(members) == {"good": 1}
        fixed.set()
        assert bad.refresh().value == 1


def test_a_thread_with_an_unexpected_error_reports_offline_and_continues(tmp_path, monkeypatch):
    with cells.open(str(tmp_path)) as theirs, cells.open(str(tmp_path)) as ours:
        reader, fixed = ours.reader("x", int), threading.Event()
        pass_on = ours._backend._pass_on

        def failing(changed):
            if not fixed.is_set():
                raise RuntimeError("nobody expected this")
            pass_on(changed)

        monkeypatch.setattr(ours._backend, "_pass_on", failing)
        version = theirs.writer("x", int).write(1)
        reader.when.offline(timeout=IN_TIME)
        fixed.set()
        assert reader.when.reaches(version, timeout=IN_TIME).value == 1
        reader.when.online(timeout=IN_TIME)


@pytest.mark.parametrize("name", ["日" * 60, "п" * 100, "a" * 241, "a/" * 70 + "a"])
def test_a_name_that_no_folder_can_have_is_refused_where_it_is_given(place, name):
    connection = place.open()
    reader = connection.reader("threshold", int)
    with pytest.raises(ConfigError, match="too long to name a cell: percent-encoded it has"):
        connection.reader(name, int)
    with pytest.raises(ConfigError, match="too long to name a cell"):
        connection.map_writer("members", int).write(name, 1)
    version = place.open().writer("threshold", int).write(1)
    assert reader.when.reaches(version, timeout=IN_TIME).value == 1
    assert reader.is_online


@pytest.mark.parametrize("name", ["日" * 26, "a" * 240])
def test_the_longest_names_work_everywhere(place, name):
    assert place.open().writer(name, int).write(1) == place.open().reader(name, int).version()


def test_one_odd_entry_does_not_make_a_map_unreadable(place):
    theirs, ours = place.open(), place.open()
    members = ours.map_writer("members", str)
    members.write("a", "1")
    members.write("b", "2")
    theirs.writer("members/odd", int).write(7)
    eventually(lambda: members.unreadable)
    assert dict(members) == {"a": "1", "b": "2"}
    assert len(members) == 2
    assert "odd" not in members
    assert dict(theirs.map_reader("members", str)) == {"a": "1", "b": "2"}
    with pytest.raises(cells.WrongType, match="declared as int, here as str"):
        members["odd"]
    assert isinstance(members.unreadable["odd"], cells.WrongType)
