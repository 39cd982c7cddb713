"""The tutorial's program and tests, as a reader has them after each step, run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs/tutorial.md").read_text()
_BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


def run(folder: Path, *command: str) -> str:
    ended = subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_program_and_its_tests_grow_as_the_tutorial_says(tmp_path):
    tests = [block for block in _BLOCKS if "def test_" in block]
    programs = [block for block in _BLOCKS if "def test_" not in block]
    assert (len(programs), len(tests)) == (3, 3)
    (tmp_path / "orders").mkdir()
    (tmp_path / "shop.py").write_text(programs[0])
    (tmp_path / "test_shop.py").write_text(tests[0])
    assert "2 passed" in run(tmp_path, "pytest", "-q", "-p", "no:cacheprovider")
    (tmp_path / "shop.py").write_text("\n".join(programs))
    (tmp_path / "test_shop.py").write_text("\n\n".join(tests))
    assert "4 passed" in run(tmp_path, "pytest", "-q", "-p", "no:cacheprovider")
    assert "per-hour" in run(tmp_path, "tidewheel", "graph", "shop.py")
