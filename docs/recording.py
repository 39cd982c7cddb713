"""Make `docs/recording.svg`, the picture in the README: the README's own program, really run, on a terminal of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 120
_ERASE = re.compile(r"\r|\x1b\[\d*[AKG]|\x1b\[2K|\x1b\[\?25[lh]")


def main() -> None:
    """Run the README's commands and write the picture."""
    readme = (ROOT / "README.md").read_text()
    program = _found(r"Save this as `clicks.py`:\n\n```python\n(.*?)```", readme)
    shell = _found(r"\n((?:    [^\n]*\n)+)", readme[readme.index("Save this as `clicks.py`") :])
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"))  # noqa: SIM115  # it lives as long as we do
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "clicks.py").write_text(program)
        for command in map(str.strip, shell.splitlines()):
            console.print(Text(f"$ {command}", style="bold"))
            for line in lines(on_a_terminal(command, folder)):
                console.print(Text.from_ansi(line), soft_wrap=True)
    picture = console.export_svg(title="tidewheel")
    # The picture's own names: a run that shows the same gives the same file.
    picture = re.sub(r"terminal-\d+", "terminal", picture)
    (ROOT / "docs/recording.svg").write_text(picture)


def on_a_terminal(command: str, folder: str) -> str:
    """Return all that a command writes to a terminal."""
    leader, terminal = os.openpty()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "TERM": "xterm-256color", "COLUMNS": str(WIDTH), "LINES": "30"}
    process = subprocess.Popen(
        command, shell=True, cwd=folder, env=environment, stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    data = b""
    while True:
        try:
            data += os.read(leader, 65536)
        except OSError:  # The command has ended.
            break
    os.close(leader)
    if process.wait():
        raise SystemExit(f"{command} failed:\n{data.decode()}")
    return data.decode()


def lines(text: str) -> list[str]:
    """Return the lines that stayed, and of those that were written over one for each of Spark's start and the batch."""
    shown: list[str] = []
    for line in (part for whole in text.split("\n") for part in _ERASE.split(whole)):
        plain = Text.from_ansi(line).plain.strip()
        passing = next((word for word in ("starting: Spark", "batch 0:") if word in plain), None)
        if passing is None and ("starting:" in plain or plain.startswith(("waiting", "WARNING"))):
            continue
        if plain and not any(passing is not None and passing in Text.from_ansi(other).plain for other in shown):
            shown.append(line)
    return shown


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.S)
    assert match is not None, f"the README has no {pattern}"
    return match[1]


if __name__ == "__main__":
    main()
