"""Each optional subject can be removed: its folder and its line in `_subjects.py`. The rest of the package then works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tidewheel
from tidewheel._subjects import SUBJECTS, added

ROOT = Path(__file__).parents[2]
QUICK = (
    "tests/unit/cells/test_cells_declared.py",
    "tests/unit/cells/test_cells_open.py",
    "tests/unit/cli/test_cli_program.py",
    "tests/unit/connectors/test_codecs.py",
    "tests/unit/connectors/test_files_choice.py",
    "tests/unit/connectors/test_staging.py",
    "tests/unit/operators/test_graph.py",
    "tests/unit/operators/test_map.py",
    "tests/unit/operators/test_stateful_op.py",
    "tests/unit/program/test_streams.py",
    "tests/unit/testing/test_run_in_memory.py",
)
"""Tests of the parts that every user needs."""
REST = """
import importlib, pkgutil, sys
import pytest, tidewheel
from typer.testing import CliRunner
from tidewheel._cli import app

assert tidewheel.__file__.startswith(sys.argv[1]), tidewheel.__file__
modules = [found.name for found in pkgutil.walk_packages(tidewheel.__path__, "tidewheel.") if "__main__" not in found.name]
for name in modules:
    importlib.import_module(name)
for name in tidewheel.__all__:
    getattr(tidewheel, name)
for public in (tidewheel.sinks, tidewheel.sources, tidewheel.cells, tidewheel.connectors):
    exec(f"from {public.__name__} import *", {})
print("modules:", len(modules))
listed = CliRunner().invoke(app, ["--help"])
assert listed.exit_code == 0, listed.output
from tidewheel._cli.commands import COMMANDS
for command in COMMANDS:
    assert command in listed.output
    shown = CliRunner().invoke(app, [command, "--help"])
    assert shown.exit_code == 0, shown.output
print("commands:", *COMMANDS)
assert CliRunner().invoke(app, ["sinks"]).exit_code == 0
quiet = ["-q", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist", "--confcutdir=tests/unit"]
sys.exit(pytest.main([*quiet, *sys.argv[2:]]))
"""


def without(folder: str) -> set[str]:
    """Return the subjects that have to go with one: those that need it."""
    gone = {folder}
    while more := {name for name, subject in SUBJECTS.items() if gone & set(subject.needs.split())} - gone:
        gone |= more
    return gone


def remove(package: Path, folder: str) -> None:
    """Remove the folder of a subject and its line, and the parts of other subjects that need it."""
    shutil.rmtree(package / folder.replace(".", "/"))
    for part in package.rglob(f"with_{folder.rpartition('.')[2]}"):
        shutil.rmtree(part)
    registry = package / "_subjects.py"
    lines = registry.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(f'    "{folder}": Subject(')]
    assert len(kept) == len(lines) - 1
    registry.write_text("".join(kept))


@pytest.mark.parametrize("folder", SUBJECTS)
def test_the_rest_works_without(folder, tmp_path):
    package = tmp_path / "tidewheel"
    shutil.copytree(Path(tidewheel.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    gone = without(folder)
    for each in gone:
        remove(package, each)
    ended = subprocess.run(
        [sys.executable, "-c", REST, str(tmp_path), *QUICK],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "tests")])},
        capture_output=True,
        text=True,
    )
    print(f"without {', '.join(sorted(gone))}:", ended.stdout[-1500:], ended.stderr[-3000:])
    assert ended.returncode == 0
    commands = re.search("commands: (.*)", ended.stdout)[1].split()
    theirs = {name for name, path in added("commands").items() if path.startswith(f"tidewheel.{folder}.")}
    assert not theirs & set(commands)
