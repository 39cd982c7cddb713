"""A running job reports how many files are waiting."""

from __future__ import annotations

import threading

from tidewheel import Job, JobStatus, RunOptions, sinks, sources
from tidewheel._checkpoint.job_place import JobPlace
from tidewheel._engine.job_status import look
from tidewheel._storage import open_store
from tidewheel.checkpoints import StreamCheckpoints


def test_a_run_has_read_all_files_that_were_there(spark, tmp_path):
    folder = tmp_path / "a folder, 100% ünïcode" / "day=1"
    folder.mkdir(parents=True)
    (folder / "first file.txt").write_text("1\n")
    job = Job("reads", state=f"file://{tmp_path}/state", n_shards=2)
    source = sources.files(folder.parent, "text")
    job.source("in", source).sink("out", sinks.discard())
    job.run(until="caught-up", options=RunOptions(spark=spark, local=str(tmp_path / "local")))
    (folder / "another file.txt").write_text("2\n")
    check_that_an_idle_run_tells_what_waits_now(job, spark, str(tmp_path / "local"))


def check_that_an_idle_run_tells_what_waits_now(job: Job, spark, local: str) -> None:
    def status() -> JobStatus:
        newest = StreamCheckpoints(open_store(job.state), job.name).latest()
        assert newest is not None
        return look(JobPlace(job.name, job.state), newest)

    with job.start(options=RunOptions(spark=spark, local=local)) as run:
        pause = threading.Event()
        while status().events < 2:
            assert run.status.state in ("starting", "running")
            pause.wait(0.1)
        # One file waited when the run began. It makes no further commit, and tells all the same that none does now.
        while status().files_waiting != 0:
            assert run.status.state == "running"
            pause.wait(0.1)
        assert status().waiting_seconds == 0
        run.stop()
    assert (status().running, status().files_waiting) == (False, None)
