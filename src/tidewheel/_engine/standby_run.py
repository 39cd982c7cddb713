"""A standby: a run that waits, ready to work, until the job's current run dies, and then takes over the job.

It takes the job when the lease is free: when the other run released it or did not renew it for its whole duration. Its claim
fences the other run, which may only have been paused. If the other run ended in order because somebody ordered the job to
stop, or because the job has ended for good, the waiting run ends too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tidewheel._checkpoint.unpublished import owes_output
from tidewheel._core import faults
from tidewheel._core.logs import logger
from tidewheel._engine.claim import ClaimTerms
from tidewheel._engine.control import order_stop
from tidewheel._engine.job_lease import Holder, LeaseState, LeaseWatch
from tidewheel._engine.job_run import JobRun
from tidewheel._engine.plan import Plan
from tidewheel._engine.program_job import ProgramJob
from tidewheel._engine.take_over_run import TakeOverRun
from tidewheel.errors import TidewheelError

_LOG = logger(__name__)

LEASED = faults.declare("standby.leased", "a waiting run has the lease, and has not claimed the job")

_LOOK_S = 0.5
"""How often to look at the lease, whether it changes or not."""
_WARM_EVERY_S = 1.0
_WARM_SHARE = 4
"""After updating local copies, wait at least this many times as long as that took."""


class StandbyRun(TakeOverRun):
    """A run that takes the job over when the run that has it is gone."""

    stand_by: Callable[[], None]
    """Called at each look at the lease; raises if this run is to stop. Set by the owner of the tasks."""
    warm: Callable[[], None]
    """Brings local copies up to the head. Set by the owner of the tasks."""

    def __init__(self, job: ProgramJob, plan: Plan, terms: ClaimTerms) -> None:
        """Take the program of the job."""
        super().__init__(job, plan, terms)
        self._watch = LeaseWatch(self.cells.connection)
        self._last: Holder | None = None
        """The run that had the job at the last look at which there was one."""
        self._warm_after = 0.0
        self._warmed: int | None = None
        """The commit that local copies are up to."""
        self._over = False
        self._spark: Any = None

    def reserve(self) -> None:
        if self._took_over:
            JobRun.reserve(self)
        else:
            super().reserve()

    def load_tables(self, spark: Any) -> None:
        """Load reference tables once this run has the lease: versions that nothing refers to for long are collected."""
        self._spark = spark
        if self._took_over:
            super().load_tables(spark)

    def stop_ordered(self) -> bool:
        return self._over or super().stop_ordered()

    def begin(self) -> None:
        """Wait until the job has no run, and claim it."""
        self._await_lease()
        self._took_over = True
        faults.point(LEASED)
        self.load_tables(self._spark)
        super().begin()
        if self._last is not None:
            _LOG.warning("job %r: taken over from %s", self.job.name, self._last.describe())
            # It cannot commit any more. Without new data it would not find out.
            order_stop(self.cells.connection, self._last.run)
        self.start_sinks()

    def _await_lease(self) -> None:
        # Only then is it ready: the first time takes longest.
        self._keep_warm()
        while True:
            self.stand_by()
            lease = self._watch.look()
            if lease.at_work:
                self._last = lease.holder
                self._keep_warm()
                self._watch.wait(_LOOK_S)
            elif self._is_over(lease):
                self._over = True
            elif self.lease.take(self._watch.version):
                return

    def _is_over(self, lease: LeaseState) -> bool:
        """Return whether the job was ordered to stop, or has ended for good."""
        last = lease.holder or self._last
        if last is not None and self.cells.stop_ordered(last.run):
            return True
        newest = self.checkpoints.latest()
        return newest is not None and newest.flushed is not None and not owes_output(newest)

    def _keep_warm(self) -> None:
        began = time.monotonic()
        if began < self._warm_after:
            return
        try:
            newest = self.checkpoints.latest()
        except TidewheelError as error:
            _LOG.warning("job %r: its commits cannot be read: %s", self.job.name, error)
            newest = None
        if newest is not None and newest.sequence != self._warmed:
            self.head = newest
            self.warm()
            self._warmed = newest.sequence
        self._warm_after = time.monotonic() + max(_WARM_EVERY_S, _WARM_SHARE * (time.monotonic() - began))
