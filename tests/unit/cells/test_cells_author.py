"""The author of a cell's change is stored next to its value, and never decides anything."""

from __future__ import annotations

import getpass
import socket
import sys

import msgspec
import pytest

from support.waiting import IN_TIME
from tidewheel import cells
from tidewheel._cells import author as authors
from tidewheel._cells import record as records
from tidewheel._cells.record import FORMAT, CellRecord


@pytest.fixture
def connection(tmp_path):
    with cells.open(str(tmp_path), program="tidewheel node a") as opened:
        yield opened


def test_a_change_says_user_host_and_program(connection):
    cell = connection.writer("x", int)
    assert cell.last_change() == (0, None, None)
    version = cell.write(1)
    author = cell.last_change().author
    assert cell.last_change() == (version, 1, author)
    assert (author.user, author.host, author.program) == (getpass.getuser(), socket.gethostname(), "tidewheel node a")
    assert str(author) == f"{author.user} on {author.host}, by tidewheel node a"


def test_others_see_who_made_the_last_change(tmp_path, connection):
    connection.writer("x", int).write(1)
    with cells.open(str(tmp_path), program="b") as other:
        reader = other.reader("x", int)
        assert reader.last_change().author.program == "tidewheel node a"
        version = other.writer("x", int).clear()
        reader.when.reaches(version, timeout=IN_TIME)
        assert (reader.read(), reader.last_change().author.program) == (None, "b")


def test_the_same_value_from_another_author_is_exchanged(tmp_path, connection):
    connection.writer("x", int).write(1)
    with cells.open(str(tmp_path), program="b") as other:
        assert other.writer("x", int).compare_exchange(1, 2).applied


def test_a_record_of_an_older_version_has_no_author():
    older = msgspec.msgpack.encode([FORMAT, "int", b"token", b"\x05", None, None])
    assert records.decode(older, "x").author is None


def test_older_versions_read_values_of_this_version():
    class Older(msgspec.Struct, array_like=True):
        format: int
        type_name: str
        token: bytes
        value: bytes | None
        ticket: str | None = None
        proof: bytes | None = None

    data = records.encode(CellRecord(FORMAT, "int", b"t", b"\x05", author=authors.Signature("a").now()))
    assert msgspec.msgpack.decode(data, type=Older).value == b"\x05"


def test_fields_of_newer_versions_are_ignored():
    newer = [FORMAT, "int", b"token", b"\x05", None, None, ["ann", "web-1", "a", 1.5, "more"], "more"]
    assert records.decode(msgspec.msgpack.encode(newer), "x").author == authors.Author("ann", "web-1", "a", 1.5)


def test_a_hidden_value_does_not_change_the_author_of_the_shown_one(tmp_path, connection):
    issuer = cells.TicketIssuer("at least 32 characters, and better ones", audience="x")
    validator = cells.TicketValidator("at least 32 characters, and better ones", audience="x")
    reader = connection.reader("x", int).require_ticket(validator)
    connection.writer("x", int).present(issuer.issue("a", lifetime="3600 s")).write(1)
    with cells.open(str(tmp_path), program="stranger") as other:
        other.writer("x", int).write(2)
    reader.refresh()
    assert (reader.read(), reader.last_change().author.program) == (1, "tidewheel node a")


@pytest.mark.parametrize(
    ("argv", "program"),
    [
        (["/srv/jobs/clicks.py", "--password", "secret"], "clicks.py"),
        (["/usr/lib/python3/site-packages/tidewheel/__main__.py", "cells"], "tidewheel"),
        (["-c"], "python"),
        ([""], "python"),
        ([], "python"),
        (["/srv/\udcff.py"], "?.py"),
        (["/srv/" + "x" * 300], "x" * 120),
    ],
)
def test_a_program_is_known_by_its_script_without_its_arguments(monkeypatch, argv, program):
    monkeypatch.setattr(sys, "argv", argv)
    author = authors.Signature().now()
    assert author.program == program
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(author), type=authors.Author) == author


def test_a_user_without_a_name_is_known_by_number(monkeypatch):
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000)
    assert authors.Signature().now().user == "4000000"
