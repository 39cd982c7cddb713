"""What type checkers make of programs: `accepted.py` and examples pass, `refused.py` fails where its comments say so.

A comment `# error: word` says that the checkers report an error in that line, and that the word is in what they report.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXAMPLES = tuple(f"../../examples/{name}.py" for name in ("clicks", "fleet_program", "joins", "sessions", "windows"))
PROGRAMS = ("accepted.py", "refused.py", *EXAMPLES)

Place = tuple[str, int]


def run_mypy() -> Iterator[tuple[Place, str]]:
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-pretty", "--no-error-summary"]
        + [str(HERE / name) for name in PROGRAMS],
        cwd=ROOT,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    for line in ended.stdout.splitlines():
        if reported := re.fullmatch(r"(.+?):(\d+): error: (.+)", line):
            yield (Path(reported[1]).name, int(reported[2])), reported[3]


def run_pyright() -> Iterator[tuple[Place, str]]:
    ended = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(HERE)],
        capture_output=True,
        text=True,
    )
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    for each in json.loads(ended.stdout)["generalDiagnostics"]:
        if each["severity"] == "error":
            yield (Path(each["file"]).name, each["range"]["start"]["line"] + 1), each["message"]


@pytest.fixture(scope="module", params=[run_mypy, run_pyright], ids=["mypy", "pyright"])
def errors(request) -> dict[Place, str]:
    """What a checker reports, by program and line."""
    by_place: dict[Place, str] = {}
    for place, message in request.param():
        by_place[place] = f"{by_place.get(place, '')}\n{message}"
    return by_place


def expected(name: str) -> dict[Place, str]:
    lines = enumerate((HERE / name).read_text().splitlines(), start=1)
    return {(name, number): word[1] for number, line in lines if (word := re.search(r"# error: (\S+)$", line))}


def test_correct_programs_pass_with_the_types_that_they_should_have(errors):
    assert {place: message for place, message in errors.items() if place[0] != "refused.py"} == {}


def test_wrong_programs_fail_where_they_are_wrong_and_nowhere_else(errors):
    words = expected("refused.py")
    assert len(words) > 20
    reported = {place: message for place, message in errors.items() if place[0] == "refused.py"}
    assert reported.keys() == words.keys()
    silent = {place: message for place, message in reported.items() if words[place] not in message}
    assert silent == {}


def test_the_package_declares_its_types():
    assert (ROOT / "src" / "tidewheel" / "py.typed").is_file()
