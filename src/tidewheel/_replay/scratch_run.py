"""Run a program over batches of a job in a scratch place, keep the rows that it writes, and publish nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

import msgspec

from tidewheel._checkpoint.manifest import Manifest
from tidewheel._engine.local_tasks import LocalTasks, MakeStep
from tidewheel._engine.program_job import ProgramJob
from tidewheel._engine.replay_runtime import LocalRuntime, Place, Runtime
from tidewheel._engine.report import Report
from tidewheel._engine.task_layout import Layout
from tidewheel._replay.follower import Follower
from tidewheel._replay.recorded_input import RecordedBatch
from tidewheel._replay.recording_sinks import Rows, recording, rows_of
from tidewheel._storage import Store, open_store


class ScratchRun:
    """One program, its follower in a scratch store, and the rows that its last batch wrote."""

    def __init__(
        self,
        job: ProgramJob,
        place: Place,
        token: str,
        runtime: Runtime,
        make_step: MakeStep | None,
        allow_dropped_state: Collection[str] | None,
    ) -> None:
        """Use `scratch_run`."""
        url, self._local = place
        self.store, self._runtime, self._make_step = open_store(url), runtime, make_step
        self.rows: Rows = {}
        self.seconds = 0.0
        stream = f"{job.name}/{token}"
        self.follower = Follower(job, self.store, stream, token, self._compute, allow_dropped_state=allow_dropped_state)

    @property
    def head(self) -> Manifest:
        """The newest commit, whose state is in `store`."""
        return self.follower.head

    def follow(self, batch: RecordedBatch) -> Rows:
        """Process a batch and return its rows."""
        self.rows = {}
        self.seconds += self.follower.follow(batch).seconds
        return self.rows

    def counted(self, committed: Manifest) -> dict[str, tuple[int, int]]:
        """Return the numbers of rows of each sink, as committed and of the batch that was processed last."""
        outputs = {output.sink: output.rows for output in committed.outputs if committed.outputs_of is None}
        return {
            name: (outputs.get(name, 0), len(self.rows.get(name, ()))) for name in outputs.keys() | self.rows.keys()
        }

    def _compute(self, layout: Layout) -> list[Report]:
        spec = msgspec.structs.replace(layout.spec, local=self._local, silent=False)
        layout = msgspec.structs.replace(layout, spec=spec)
        plan = recording(self.follower.plan)
        tasks = self._runtime.tasks(plan) if self._make_step is None else LocalTasks(plan, self._make_step)
        reports = tasks.reports(layout)
        self.rows = rows_of(spec, reports)
        return reports


@contextlib.contextmanager
def scratch_run(
    job: ProgramJob,
    store: Store,
    base: Manifest,
    token: str,
    *,
    runtime: Runtime | None = None,
    make_step: MakeStep | None = None,
    allow_dropped_state: Collection[str] | None = (),
) -> Iterator[ScratchRun]:
    """Provide a run of a program that continues the state of a commit, adapted to the program as a start does.

    By default it runs in this process. `make_step` makes tasks of this process that observe their messages.
    `allow_dropped_state` is as for a `Follower`.
    """
    runtime = runtime or LocalRuntime()
    with runtime.place(store, job.name) as place:
        run = ScratchRun(job, place, token, runtime, make_step, allow_dropped_state)
        run.follower.begin(base)
        yield run
