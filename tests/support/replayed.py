"""Run a job in memory from its own sources, and run every batch of it again."""

from __future__ import annotations

import copy
import random
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from tidewheel import Job, StoredJob
from tidewheel._connectors.memory.iterable import IterableSource
from tidewheel._connectors.source import Source
from tidewheel._engine.commit import SourceProgress, is_computed
from tidewheel._engine.continued_sources import job_sources, kind_of
from tidewheel._engine.job_sources import JobSources
from tidewheel._engine.task_layout import divided, in_one_task
from tidewheel._testing.memory import MemoryRun
from tidewheel._testing.rewire import collecting, rewired
from tidewheel._values import Shape


class ReadingRun(MemoryRun):
    """A run in this process that reads its sources and commits their positions, as a run on Spark does."""

    def read_all(self, draw: random.Random, most: int) -> None:
        """Run batches until the sources have no more, with 1 to `most` tasks each, and end the job."""
        sources = JobSources(self.plan, {name: source.open() for name, source in job_sources(self.plan).items()})
        kinds = {name: kind_of(source) for name, source in job_sources(self.plan).items()}
        starts: dict[str, Any] = {name: reader.start() for name, reader in sources.readers.items()}
        while (ends := {name: reader.end(starts[name]) for name, reader in sources.readers.items()}) != starts:
            self.parallelism = draw.randint(1, most)
            spec = self._spec(None)
            splits = sources.splits(starts, ends, self.parallelism)
            levels = range(len(self.plan.levels))
            one = draw.random() < 0.3
            layout = in_one_task(spec, levels, splits) if one else divided(spec, levels, splits, None)
            progress = SourceProgress(self.next_batch, ends, kinds)
            self.run.commit(spec, self._tasks.reports(layout), "batch", None, progress)
            starts = ends
        self.flush()


class _Given(IterableSource):
    """Records of another type than the program's own source may have."""

    def declared(self, shape: Shape) -> Source:
        return self


def check_replays(
    job: Job,
    inputs: Mapping[str, Sequence[Any]] | None = None,
    *,
    seed: int,
    batch_size: int | None = None,
    parallelism: int = 3,
) -> int:
    """Run a job, and then each of its batches again. Raise an `AssertionError` if one is not the same; return their number.

    `inputs` replaces the records of the sources.
    """
    draw = random.Random(seed)
    size = batch_size or max(1, max(map(len, (inputs or {}).values()), default=0) // 3)
    given: dict[str, Source] = {name: _Given(records, size, 2) for name, records in (inputs or {}).items()}
    changed = copy.copy(rewired(collecting(job), f"memory:replayed-{secrets.token_hex(6)}", given).job)
    changed.keep = 10_000
    with ReadingRun(changed) as run:
        run.read_all(draw, min(parallelism, changed.n_shards))
    stored = StoredJob(changed.name, state=changed.state)
    batches = [manifest for manifest in stored.list() if is_computed(manifest.kind)]
    different = [
        (result.sequence, result.state, result.output, result.unstable)
        for manifest in batches
        if not (result := stored.replay(changed, manifest.sequence)).same
    ]
    assert not different, f"seed {seed}: {len(different)} of {len(batches)} batches differ, the first: {different[0]}"
    return len(batches)
