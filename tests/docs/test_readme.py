"""The first program of the README runs as printed."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_first_program_runs_as_printed_on_the_files_that_it_makes(tmp_path):
    program = re.search(r"Save this as `clicks.py`:\n\n```python\n(.*?)```", README, re.S)
    command = re.search(r"^    tidewheel (run clicks.py .*)$", README, re.M)
    assert program is not None
    assert command is not None
    (tmp_path / "clicks.py").write_text(program[1])
    arguments = [sys.executable, "-m", "tidewheel", *shlex.split(command[1])]
    ended = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    totals = [json.loads(line) for file in tmp_path.glob("totals/*.json") for line in file.read_text().splitlines()]
    assert sorted(tuple(total.values()) for total in totals) == [("ada", 3), ("ada", 7), ("bob", 5)]
