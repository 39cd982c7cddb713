"""The first program of the README runs as printed."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_first_program_and_its_commands_run_as_printed(tmp_path):
    page = README[README.index("Save this as `clicks.py`") :]
    program = re.search(r"```python\n(.*?)```", page, re.S)
    commands = re.search(r"\n((?:    [^\n]*\n)+)", page)
    assert program is not None
    assert commands is not None
    (tmp_path / "clicks.py").write_text(program[1])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = textwrap.dedent(commands[1])
    assert "tidewheel run clicks.py" in script
    ended = subprocess.run(
        ["sh", "-ec", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    totals = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    assert totals == [{"user": "ada", "value": 3}, {"user": "ada", "value": 7}]


def test_the_picture_shows_the_program_at_work():
    picture = html.unescape((Path(__file__).parents[2] / "docs/recording.svg").read_text()).replace("\xa0", " ")
    for text in ("tidewheel run clicks.py", "starting: Spark", "started in", "batch 0: 2 rows", '"value":7'):
        assert text in picture, text
