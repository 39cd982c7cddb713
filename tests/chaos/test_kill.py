"""Kill the whole process group at every fault point and at random times; the outcome is that of one quiet run."""

from __future__ import annotations

import random
import shutil
import time

import pytest

from chaos import harness

SEED = 20261115


def test_killed_at_every_fault_point_the_outcome_is_exact(tmp_path):
    """One job, one life per fault point: each life dies at its point, the last one ends the job."""
    points = sorted(harness.points_of_a_run(), key=lambda name: name.startswith("flush"))
    assert len(points) > 15
    # A life commits two batches at most.
    everything = harness.write_input(tmp_path, files=2 * len(points) + 4, records=30, seed=SEED)
    for number, name in enumerate(points):
        # What happens in every batch is let pass once, so that a life commits something before it ends.
        armed = f"{name}=kill@{1 if name.startswith(('start', 'flush', 'merge')) else 2}"
        status, out, err = harness.finish(harness.start(tmp_path, armed, parallelism=str(number % 3 + 1)))
        assert status == -9, f"{armed}: the life ended with {status} instead of being killed\n{out}\n{err[-3000:]}"
    status, _, err = harness.finish(harness.start(tmp_path))
    assert status == 0, err[-3000:]
    harness.check_exact(tmp_path, everything)


@pytest.mark.parametrize("lives", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_random_times_the_outcome_is_exact(tmp_path, lives):
    """Every other life works on a machine of its own, without local copies."""
    draw = random.Random(SEED + lives)
    print(f"seed {SEED + lives}")
    everything = harness.write_input(tmp_path, files=8 * lives, records=30, seed=SEED)
    for life in range(lives):
        local = f"{tmp_path}/machine-{life // 2}"
        process = harness.start(tmp_path, parallelism=str(draw.randrange(1, 4)), local=local)
        # Most lives commit something: before that there is little to break, and starting takes seconds.
        for _ in range(draw.randrange(1, 4) if draw.random() < 0.8 else 0):
            assert process.stdout.readline().startswith("committed"), "too little input for so many lives"
        time.sleep(draw.random() * 0.5)
        harness.kill(process)
        harness.finish(process)
        if life % 2:
            shutil.rmtree(local, ignore_errors=True)
    status, _, err = harness.finish(harness.start(tmp_path))
    assert status == 0, err[-3000:]
    harness.check_exact(tmp_path, everything)
