"""All records of a batch see one version of a cell, the one in its manifest, however often it changes."""

from __future__ import annotations

import itertools
import json
import random
import re
import threading
from collections import defaultdict
from pathlib import Path

from chaos import harness
from support.internals import open_store
from tidewheel import cells
from tidewheel._engine.control import cells_url
from tidewheel.checkpoints import StreamCheckpoints

SEED = 5
PROGRAM = Path(__file__).with_name("threshold_program.py")


def test_a_changing_threshold_has_one_version_per_batch_despite_kills(tmp_path):
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    everything = harness.write_input(tmp_path, files=30, records=40, seed=SEED)
    written = {0: 0}
    with cells.open(cells_url(f"file://{tmp_path}/state", "judged")) as connection:
        threshold = connection.writer("threshold", int, namespace="cells")
        done = threading.Event()

        def change() -> None:
            for value in itertools.count(1):
                written[int(threshold.write(value))] = value
                if done.wait(0.15):
                    return

        changing = threading.Thread(target=change)
        try:
            for life in range(3):
                process = harness.start(tmp_path, program=PROGRAM)
                committed, last = 0, draw.randrange(5, 9)
                for line in process.stdout:
                    committed += line.startswith("committed")
                    if committed == 1 and life == 0:
                        changing.start()
                    if life < 2 and committed == last:
                        harness.kill(process)
                status, _, err = harness.finish(process)
                assert status == (0 if life == 2 else -9), err[-3000:]
        finally:
            done.set()
            if changing.ident is not None:
                changing.join()
    check(tmp_path, written, len(everything))


def check(folder: Path, written: dict[int, int], records: int) -> None:
    versions = {
        state.sequence: state.cells["threshold"].version
        for state in StreamCheckpoints(open_store(f"file://{folder}/state"), "judged").list()
        if state.kind == "batch"
    }
    judged = defaultdict(list)
    for path in (folder / "out").glob("*.json"):
        sequence = int(re.search(r"~(\d+)~", path.name)[1])
        judged[sequence] += [json.loads(line) for line in path.read_text().splitlines()]
    assert sum(map(len, judged.values())) == records
    for sequence, rows in judged.items():
        expected = written[versions[sequence]]
        assert {(row["threshold"], row["early"]) for row in rows} == {(expected, expected)}, sequence
    assert len({versions[sequence] for sequence in judged}) > 5, "the cell did not change often enough to show anything"
