"""A program's file, and the job in it."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from typer.testing import CliRunner

from tidewheel._cli.commands import app
from tidewheel._cli.program import load_job, split_target
from tidewheel.errors import ConfigError, GraphError


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Write a program; what loading it does to the interpreter is undone."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def write(text, name="clicks.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return str(path)

    yield write
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_the_only_job_is_the_one_that_is_meant(program):
    path = program("from tidewheel import Job\nmine = Job('clicks')\nsame = mine\n")
    assert load_job(path).name == "clicks"


def test_a_job_by_its_variable(program):
    path = program("from tidewheel import Job\na = Job('one')\nb = Job('two')\n")
    assert load_job(f"{path}:b").name == "two"


def test_several_jobs_are_listed(program):
    path = program("from tidewheel import Job\na = Job('one')\nb = Job('two')\n")
    with pytest.raises(ConfigError, match=r"several jobs; choose one: clicks\.py:a, clicks\.py:b"):
        load_job(path)


def test_a_variable_other_than_a_job(program):
    path = program("from tidewheel import Job\na = Job('one')\nb = 7\n")
    with pytest.raises(ConfigError, match=r"no job 'b'; it has a"):
        load_job(f"{path}:b")


def test_a_program_without_a_job(program):
    with pytest.raises(ConfigError, match="no Job at all"):
        load_job(program("x = 1\n"))


def test_a_program_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=rf"there is no program {tmp_path}/nowhere\.py"):
        load_job(f"{tmp_path}/nowhere.py:job")


def test_a_file_of_another_kind(program):
    with pytest.raises(ConfigError, match=r"end in \.py"):
        load_job(program("x", name="clicks.txt"))


def test_a_program_imports_modules_in_its_folder(program):
    program("from tidewheel import Job\nmade = Job('beside')\n", name="neighbour_of_clicks.py")
    assert load_job(program("from neighbour_of_clicks import made\n")).name == "beside"


def test_a_program_is_a_module_that_its_classes_know(program):
    path = program(
        """
        import dataclasses, sys
        from tidewheel import Job

        @dataclasses.dataclass
        class Click:
            user: "str"

        assert sys.modules[Click.__module__].Click is Click
        job = Job("clicks")
        """
    )
    assert load_job(path).name == "clicks"


def test_a_program_does_not_take_the_place_of_a_module_of_python(program):
    import json

    load_job(program("from tidewheel import Job\njob = Job('clicks')\n", name="json.py"))
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n\nprint(nothing)\n", r"clicks\.py fails at line 3: NameError"),
        ("x = (\n", r"clicks\.py fails at line 1: SyntaxError"),
    ],
)
def test_a_program_that_fails_shows_where(program, text, message):
    with pytest.raises(ConfigError, match=message):
        load_job(program(text))


def test_an_error_in_the_graph_is_shown_unchanged(program):
    with pytest.raises(GraphError, match="a job's name"):
        load_job(program("from tidewheel import Job\njob = Job('a/b')\n"))


def test_an_error_in_the_graph_names_the_line_of_the_program(program):
    with pytest.raises(GraphError) as raised:
        load_job(program("from tidewheel import Job\n\njob = Job('a/b')\n"))
    assert raised.value.__notes__ == ["clicks.py:3"]


def test_a_command_shows_the_line_of_an_error_in_the_graph(program):
    path = program(
        """
        from tidewheel import Job, sources

        job = Job("clicks")
        job.source("in", sources.iterable([1])).stateful_map("total", None)
        """
    )
    shown = CliRunner().invoke(app, ["graph", path])
    assert shown.exit_code == 1
    assert "put key_by first" in shown.output
    assert shown.output.endswith("(clicks.py:5)\n")


def test_a_target_may_have_colons_in_its_path():
    assert str(split_target("a:b/c.py")[0]) == "a:b/c.py"


def test_the_command_is_installed():
    found = subprocess.run(
        [sys.executable, "-c", "from tidewheel._cli import main; main()", "--version"], capture_output=True
    )
    assert found.stdout.startswith(b"tidewheel ")
