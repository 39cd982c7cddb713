"""The wheel: built as `make wheel` does, installed into a fresh virtual environment, and used from there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
from tidewheel import Job, sinks, sources
from tidewheel.testing import run_in_memory

job = Job("totals", state="memory:totals")
clicks = job.source("in", sources.iterable([{"user": "ada", "cents": 3}, {"user": "ada", "cents": 4}]))
totals = clicks.key_by("by-user", "user", value="cents").stateful_map(
    "total", lambda user, cents, total: (total + cents, total + cents), default=0)
totals.sink("out", sinks.collect())

if __name__ == "__main__":
    import tidewheel

    print(run_in_memory(job).states)
    print(tidewheel.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    command = re.search(
        r"^wheel:.*\n\t@\$\(BIN\)/python (-m hatchling .*) -d dist$", (ROOT / "Makefile").read_text(), re.M
    )
    assert command is not None, "make wheel is made of something else; build it the same way here"
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, *command[1].split(), "-d", str(folder)], cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("tidewheel-*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """A fresh environment with the wheel in it. What the wheel depends on is lent by the environment of the tests."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=False)
    python = folder / "bin/python"
    (packages,) = folder.glob("lib/python*/site-packages")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    # The path alone: an editable Tidewheel there is not seen through it.
    (packages / "lent.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder


def run(environment: Path, *command: str, cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    ended = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_wheel_has_all_that_the_package_needs(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/tidewheel").rglob("*") if path.is_file()}
    assert {name for name in sources if "__pycache__" not in name} <= names
    assert not {name for name in names if name.startswith(("tests/", "benchmarks/", "docs/"))}


def test_a_program_runs_with_the_wheel_in_a_fresh_environment(environment, tmp_path):
    (tmp_path / "totals.py").write_text(PROGRAM)
    states, file = run(environment, str(environment / "bin/python"), "totals.py", cwd=tmp_path).splitlines()
    assert states == "{'total': {'ada': 7}}"
    assert Path(file).is_relative_to(environment)


def test_the_command_is_installed(environment, tmp_path):
    (tmp_path / "totals.py").write_text(PROGRAM)
    assert run(environment, str(environment / "bin/tidewheel"), "--version", cwd=tmp_path).startswith("tidewheel ")
    graph = run(environment, str(environment / "bin/tidewheel"), "graph", "totals.py", cwd=tmp_path)
    assert "total" in graph
