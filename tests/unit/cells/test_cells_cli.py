"""`tidewheel cells` from a shell."""

from __future__ import annotations

import getpass
import json
import socket

import msgspec
import pytest
from typer.testing import CliRunner

from tidewheel import cells
from tidewheel._cells.backends.base import NOTHING
from tidewheel._cells.deadline import Deadline
from tidewheel._cli.cells import app


@pytest.fixture
def run(tmp_path):
    def run(*arguments, status=0):
        result = CliRunner().invoke(app, [*arguments], env={"TIDEWHEEL_CELLS": str(tmp_path)})
        if status == 0 and result.exception:
            raise result.exception
        assert result.exit_code == status, result.output
        return result.output.strip()

    run.url = str(tmp_path)
    return run


def test_set_and_get(run):
    assert run("set", "threshold", "0.5") == "1"
    assert run("get", "threshold") == "0.5"
    full = json.loads(run("get", "threshold", "--full"))
    assert full.pop("author")["program"] == "tidewheel cells set"
    assert full == {"name": "threshold", "type": "float", "version": 1, "value": 0.5}
    with cells.open(run.url) as connection:
        assert connection.reader("threshold", float).read() == 0.5


@pytest.mark.parametrize(
    ("text", "type_name", "value"),
    [("5", "int", 5), ("true", "bool", True), ("fast", "str", "fast"), ('"5"', "str", "5")],
)
def test_a_new_cell_gets_the_type_of_its_value(run, text, type_name, value):
    run("set", "x", text)
    shown = json.loads(run("get", "x", "--full"))
    assert (shown["type"], shown["value"]) == (type_name, value)


def test_a_new_cell_of_a_larger_type_needs_its_name(run):
    with pytest.raises(Exception, match="name it as a program declares it, as in --type"):
        run("set", "x", '{"a": 1}')
    run("set", "x", '{"a": 1}', "--type", "dict[str, int]")
    with cells.open(run.url) as connection:
        assert connection.reader("x", dict[str, int]).read() == {"a": 1}


def test_a_cell_keeps_its_type(run):
    with cells.open(run.url) as connection:
        connection.writer("x", float).write(0.5)
    run("set", "x", "2")
    with cells.open(run.url) as connection:
        value = connection.reader("x", float).read()
        assert value == 2.0
        assert isinstance(value, float)
    with pytest.raises(cells.Encoding, match="fast is not of type float"):
        run("set", "x", "fast")
    with pytest.raises(cells.WrongType, match="declared as float, not as int"):
        run("set", "x", "2", "--type", "int")


def test_text_cells_take_unquoted_text(run):
    with cells.open(run.url) as connection:
        connection.writer("x", str).write("a")
    run("set", "x", "5")
    assert run("get", "x") == '"5"'


def test_structures_of_programs_can_be_seen_and_set(run):
    class Limits(msgspec.Struct):
        low: float
        high: float

    with cells.open(run.url) as connection:
        connection.writer("limits", Limits).write(Limits(1, 2))
    assert json.loads(run("get", "limits")) == {"low": 1.0, "high": 2.0}
    run("set", "limits", '{"low": 0, "high": 9}')
    with cells.open(run.url) as connection:
        assert connection.reader("limits", Limits).read() == Limits(0, 9)


def test_cas_reports_its_result_in_its_exit_status_too(run):
    assert json.loads(run("cas", "x", "null", "1")) == {"applied": True, "version": 1, "seen": None}
    assert json.loads(run("cas", "x", "5", "6", status=1)) == {"applied": False, "version": 1, "seen": 1}
    assert json.loads(run("cas", "x", "1", "2"))["applied"]
    assert json.loads(run("cas", "x", "2", "null"))["applied"]
    assert run("get", "x") == "null"


def test_clear(run):
    run("set", "x", "1")
    assert run("clear", "x") == "2"
    assert run("get", "x") == "null"
    with pytest.raises(Exception, match="there is no cell default/y"):
        run("clear", "y")


def test_a_cell_that_was_cleared_may_get_another_type(run):
    run("set", "x", "1")
    with pytest.raises(Exception, match="declared as int, not as float; leave --type out, or clear it first"):
        run("set", "x", "1.5", "--type", "float")
    run("clear", "x")
    run("clear", "x")
    run("set", "x", "1.5")
    with cells.open(run.url) as connection:
        assert connection.reader("x", float).read() == 1.5


def test_watch(run):
    run("set", "x", "1")
    change = json.loads(run("watch", "x", "--count", "1"))
    assert change.pop("author")["program"] == "tidewheel cells set"
    assert change == {"version": 1, "value": 1}


def test_list(run):
    for name in ("b", "a/x", "a/y"):
        run("set", name, "1")
    run("set", "other", "1", "--namespace", "elsewhere")
    assert [json.loads(line)["name"] for line in run("list", "--json").splitlines()] == ["a/x", "a/y", "b"]
    assert [json.loads(line)["name"] for line in run("list", "a/", "--json").splitlines()] == ["a/x", "a/y"]
    table = run("list")
    assert "a/x" in table
    assert "int" in table
    assert "elsewhere" not in table


def test_list_shows_who_changed_a_cell(run):
    run("cas", "x", "null", "1")
    older = msgspec.msgpack.encode([1, "int", b"token", b"\x05", None, None])
    with cells.open(run.url) as connection:
        deadline = Deadline(60)
        connection._backend.swap("default/y", NOTHING, older, deadline)
    x, y = (line for line in run("list").splitlines() if "author" in line)
    assert f"{getpass.getuser()} on {socket.gethostname()}, by tidewheel cells cas, " in x
    assert "unknown" in y
    assert json.loads(run("list", "y", "--json"))["author"] is None


def test_an_unset_cell_is_null(run):
    assert run("get", "nothing") == "null"


def test_the_place_must_be_given():
    result = CliRunner().invoke(app, ["get", "x"], env={"TIDEWHEEL_CELLS": ""})
    assert result.exit_code != 0


def test_negative_numbers_are_values(run):
    run("set", "n", "-5")
    assert run("get", "n") == "-5"
    run("cas", "n", "-5", "-7", "--type", "int")
    assert run("get", "n") == "-7"
    run("set", "x", "-1.5e-3")
    assert run("get", "x") == "-0.0015"


def test_an_option_that_does_not_exist_is_refused_as_such(run):
    assert "No such option" in run("set", "n", "5", "--tipe", "int", status=2)
    assert "--tipe" in run("set", "n", "-5", "--tipe", "int", status=2)
