"""What Spark notes of the files that it has read is what the folder calls them."""

from __future__ import annotations

from tidewheel import Job, sinks, sources
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._spark.seen_files import SeenFiles
from tidewheel._spark.unread_files import UnreadFiles
from tidewheel._storage import open_store


def test_a_run_has_read_all_files_that_were_there(spark, tmp_path):
    folder = tmp_path / "a folder, 100% ünïcode" / "day=1"
    folder.mkdir(parents=True)
    (folder / "first file.txt").write_text("1\n")
    job = Job("reads", state=f"file://{tmp_path}/state", n_shards=2)
    source = sources.files(folder.parent, "text")
    job.source("in", source).sink("out", sinks.discard())
    job.run(trigger="available-now", spark=spark, local=str(tmp_path / "local"))
    store = open_store(job.state)
    head = StreamCheckpoints(store, job.name).latest()
    unread = UnreadFiles(SeenFiles(store, job.name, "run"), lambda: head)
    assert unread.of("in", source)["folder"].files == 0
    (folder / "another file.txt").write_text("2\n")
    assert unread.of("in", source)["folder"].files == 1
