"""Ctrl-C: the first lets the batch finish and ends the run, the second ends it at once; a closed terminal acts like the first."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
from pathlib import Path

from chaos import harness
from support.internals import open_store
from support.waiting import SOON, eventually
from tidewheel.checkpoints import StreamCheckpoints

SEED = 3


def test_an_unbounded_run_stops_after_its_batch_and_a_new_run_continues(tmp_path):
    everything = harness.write_input(tmp_path, files=12, records=20, seed=SEED)
    process = harness.start(tmp_path, bounded="no")
    harness.until(process, "committed")
    os.kill(process.pid, signal.SIGINT)
    status, out, err = harness.finish(process)
    assert status == 0, err[-3000:]
    assert "stopped" in out
    assert "stopping when the batch is committed" in err
    first = newest_run(tmp_path)
    # The second run's first batch is interrupted twice while it is held up between its tasks and its commit.
    process = harness.start(tmp_path, "batch.ran=delay:600", bounded="no")
    eventually(lambda: newest_run(tmp_path) != first, "the claim of the second run")
    second = newest_run(tmp_path)
    eventually(
        lambda: any((tmp_path / "state/chaos/state").glob(f"*-{second}-*.delta")), "the delta of its first batch"
    )
    os.kill(process.pid, signal.SIGINT)
    # Two signals sent at once may arrive as one.
    assert any("stopping when the batch" in line for line in process.stderr)
    os.kill(process.pid, signal.SIGINT)
    status, _, err = harness.finish(process)
    assert status == 130, err[-3000:]
    status, _, err = harness.finish(harness.start(tmp_path))
    assert status == 0, err[-3000:]
    harness.check_exact(tmp_path, everything)


def own_terminal() -> None:
    """Make standard input the terminal of this process; whoever runs the tests under `nohup` lets it ignore the hang-up."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def test_closing_the_terminal_ends_tidewheel_run_after_its_batch(tmp_path):
    everything = harness.write_input(tmp_path, files=12, records=20, seed=SEED)
    program = tmp_path / "hangup_program.py"
    program.write_text(f"from chaos.program import build\n\njob = build({str(tmp_path)!r})\n")
    leader, terminal = os.openpty()
    command = [sys.executable, "-m", "tidewheel", "run", str(program), "--parallelism", "2", "--master", "local[2]"]
    command += ["--local", str(tmp_path / "local"), "--conf", "spark.driver.memory=1g"]
    with (tmp_path / "errors").open("w") as errors:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])},
            stdin=terminal,
            stdout=terminal,
            stderr=errors,
            start_new_session=True,
            preexec_fn=own_terminal,
        )
    os.close(terminal)
    text = b""
    while b"batch 1:" not in text:
        text += os.read(leader, 4096)
    os.close(leader)
    assert process.wait(SOON) == 0, (tmp_path / "errors").read_text()
    newest = StreamCheckpoints(open_store(f"file://{tmp_path}/state"), "chaos").latest()
    assert newest.kind == "stop"
    status, _, err = harness.finish(harness.start(tmp_path))
    assert status == 0, err[-3000:]
    harness.check_exact(tmp_path, everything)


def newest_run(folder) -> str:
    newest = StreamCheckpoints(open_store(f"file://{folder}/state"), "chaos").latest()
    return newest.run
