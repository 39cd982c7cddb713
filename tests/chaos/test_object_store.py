"""A machine is lost: a job killed during or after a batch continues elsewhere from the bucket with its state."""

from __future__ import annotations

import shutil

from chaos import harness
from tidewheel import StoredJob

SEED = 13


def test_the_job_continues_from_the_bucket_alone(tmp_path, seaweedfs):
    everything = harness.write_input(tmp_path, files=9, records=20, seed=SEED)
    url = seaweedfs.url("chaos-object-store")
    for life, armed in enumerate(["batch.started=kill@3", "commit.created=kill@3"]):
        options = {
            "state": url,
            "local": f"{tmp_path}/machine-{life}",
            "parallelism": str(life + 1),
            "take_over": "yes",
        }
        status, _, err = harness.finish(harness.start(tmp_path, armed, **options))
        assert status == -9, err[-3000:]
        # A machine has no copies if its tasks kept all states in memory.
        shutil.rmtree(tmp_path / f"machine-{life}", ignore_errors=True)
    options = {"state": url, "local": f"{tmp_path}/machine-new", "take_over": "yes"}
    status, _, err = harness.finish(harness.start(tmp_path, **options))
    assert status == 0, err[-3000:]
    harness.check_exact(tmp_path, everything, url)
    assert StoredJob("chaos", state=url).verify().problems == ()
