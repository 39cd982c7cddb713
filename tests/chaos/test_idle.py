"""Kill a job while it waits for time and commits nothing; the outcome is that of one quiet run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from chaos import harness
from support.internals import open_store
from tidewheel.checkpoints import StreamCheckpoints

PROGRAM = Path(__file__).with_name("idle_program.py")


def write(folder: Path, number: int, seconds: range) -> None:
    (folder / "in").mkdir(exist_ok=True)
    records = ({"user": f"user-{at % 3}", "at": f"2026-01-01T00:{at // 60:02}:{at % 60:02}Z"} for at in seconds)
    (folder / "in" / f"{number}.json").write_text("".join(json.dumps(record) + "\n" for record in records))


def test_killed_while_idle_the_outcome_is_exact(tmp_path):
    write(tmp_path, 0, range(45))
    idle = harness.start(tmp_path, "commit.skipped=kill@5", PROGRAM)
    status, out, err = harness.finish(idle)
    assert status == -9, f"{out}\n{err[-3000:]}"
    # The data, and the epoch that follows from it: five idle batches left nothing behind.
    assert out.count("committed") == 2, out
    sequences = StreamCheckpoints(open_store(f"file://{tmp_path}/state"), "idle").sequences()
    write(tmp_path, 1, range(45, 100))
    status, _, err = harness.finish(harness.start(tmp_path, "", PROGRAM, bounded="yes"))
    assert status == 0, err[-3000:]
    assert len(sequences) == 3, "a claim and two commits"
    windows = Counter({(row["user"], row["start"]): row["n"] for row in harness.rows(tmp_path / "out")})
    assert len(harness.rows(tmp_path / "out")) == len(windows) == 30, "each window is out once"
    assert sum(windows.values()) == 100
    assert harness.rows(tmp_path / "late") == []
