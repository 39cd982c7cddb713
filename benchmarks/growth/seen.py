"""Measure a batch of a file source that has read many files: its cost follows the new files.

A job on Spark reads one new file per batch. The files that it has read before are simulated: entries of files of the previous
year that no longer exist. The cost is how much longer the best of several batches takes than with the fewest files.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from benchmarks.growth.growth import Growth, hand_over

from tidewheel import Job
from tidewheel._checkpoint.manifest import Manifest, SeenFile
from tidewheel._engine.seen_files import SeenFiles, remembered
from tidewheel.sinks import discard
from tidewheel.sources import files

SEEN = (1_000, 100_000, 1_000_000)
BATCHES = 15
YEAR_MS = 365 * 24 * 3600 * 1000


def job(folder: Path) -> Job:
    """Return a job that counts the lines of each key, one file per batch."""
    made = Job("seen", state=f"file://{folder}/state", n_shards=4)
    source = made.source("in", files(folder / "in", "json", schema="key string", max_files_per_trigger=1))
    counted = source.key_by("by", "key").stateful_map("n", lambda key, row, n: (n, n + 1), default=0)
    counted.sink("out", discard())
    return made


def add_file(folder: Path, name: str) -> int:
    """Add a file to the input folder; return its time as the source sees it."""
    file = folder / "in" / f"{name}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text('{"key": "a"}\n')
    return int(file.stat().st_mtime * 1000)


@contextmanager
def having_seen(number: int, at: int) -> Iterator[None]:
    """Add this many entries of files to those that a start finds."""
    real = SeenFiles.load

    def load(self: SeenFiles, state: Manifest) -> list[SeenFile]:
        times = (at - YEAR_MS + n * YEAR_MS // number for n in range(number))
        made_up = [SeenFile("in", f"0:file:///gone/{n:09}.json", 0, time, 0) for n, time in enumerate(times)]
        return remembered([*made_up, *real(self, state)], self.ages)

    with patch.object(SeenFiles, "load", load):
        yield


def batch_ms(number: int) -> float:
    """Return the time of the best batch with this number of files."""
    folder = Path(tempfile.mkdtemp())
    try:
        at = 0
        for n in range(4):
            at = add_file(folder, f"first-{n:03}")
        job(folder).run(until="caught-up", parallelism=1)
        for n in range(BATCHES):
            add_file(folder, f"then-{n:03}")
        with having_seen(number, at):
            done = job(folder).run(until="caught-up", parallelism=1)
        # The first batch of a run warms up what all runs need.
        seconds = [batch.seconds for batch in done.batches[1:]]
        return min(seconds) * 1000
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    batch_ms(SEEN[0])
    times = {number: batch_ms(number) for number in SEEN}
    more = {number: round(time - times[SEEN[0]], 1) for number, time in times.items()}
    hand_over(Growth("seen_ms_1000000", "a batch, and how many files were seen: ms more", "files seen", "ms", more, 20))
