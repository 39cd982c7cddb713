"""The machine is gone: local copies and Spark's folder vanish between any two batches; the state URL is enough."""

from __future__ import annotations

import shutil

from chaos import harness

SEED = 11


def test_the_job_goes_on_from_the_state_url_alone(tmp_path):
    everything = harness.write_input(tmp_path, files=8, records=25, seed=SEED)
    for life in range(2):
        status, _, err = harness.finish(
            harness.start(
                tmp_path, "batch.started=kill@3", local=f"{tmp_path}/machine-{life}", parallelism=str(life % 3 + 1)
            )
        )
        assert status == -9, err[-3000:]
        shutil.rmtree(tmp_path / f"machine-{life}")
    status, _, err = harness.finish(harness.start(tmp_path, local=f"{tmp_path}/machine-new"))
    assert status == 0, err[-3000:]
    harness.check_exact(tmp_path, everything)
