"""A run that prepares to take over a job. Until it does, the lease and the sinks belong to the other run."""

from __future__ import annotations

from tidewheel._engine.claim import ClaimTerms
from tidewheel._engine.job_run import JobRun
from tidewheel._engine.plan import Plan
from tidewheel._engine.program_job import ProgramJob


class TakeOverRun(JobRun):
    """A run that prepares everything while another run has the job."""

    def __init__(self, job: ProgramJob, plan: Plan, terms: ClaimTerms) -> None:
        """Take the program. Nothing of the job changes before `begin` takes it over."""
        super().__init__(job, plan, terms)
        self._took_over = False

    def reserve(self) -> None:
        """Check the program against the newest commit. The lease stays with the other run."""
        newest = self._found = self.checkpoints.latest()
        if newest is not None:
            self.check(newest)

    def start_sinks(self) -> None:
        """Start the sinks once the job is taken over."""
        if self._took_over:
            super().start_sinks()
