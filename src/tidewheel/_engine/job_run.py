"""A run of a whole job: its lease, its claim, and whether its program can continue the stored state."""

from __future__ import annotations

import secrets

from tidewheel._checkpoint.manifest import CheckpointId, Manifest
from tidewheel._checkpoint.tools.state_reader import StateReader
from tidewheel._engine.claim import ClaimTerms, check_alone, claim
from tidewheel._engine.claimed_job import check_no_move
from tidewheel._engine.commit import operator_infos
from tidewheel._engine.declaration import declare
from tidewheel._engine.evolve import evolve, fitted, notices
from tidewheel._engine.job_lease import JobLease
from tidewheel._engine.plan import Plan
from tidewheel._engine.plan_sinks import check_newest, check_unpublished, check_void, dropped_output, newest_output
from tidewheel._engine.program_job import ProgramJob
from tidewheel._engine.run import ChainRun
from tidewheel._engine.stored_names import dropped, idle_aliases


class JobRun(ChainRun):
    """A run of a whole job: it takes the job's lease, and claims the job with a record in its chain.

    Only its successor reads its chain, so a batch without changes is not committed. In a fleet, other nodes wait for the commits
    of a node.
    """

    commits_idle_batches = False

    def __init__(self, job: ProgramJob, plan: Plan, terms: ClaimTerms | None = None) -> None:
        """Take a job whose graph is checked. Nothing is claimed yet."""
        super().__init__(job, plan, job.name, secrets.token_hex(6))
        self._declared = plan
        self.terms = terms or ClaimTerms()
        self.lease = JobLease(self.cells.connection, self.token, self.terms.lease)
        self._found: Manifest | None = None
        """The newest commit before this run's own."""
        self._to_release.callback(lambda: self.lease.release(failed=self._failed))

    def enter(self, phase: str | None) -> None:
        self.lease.enter(phase)

    def start_sinks(self) -> None:
        super().start_sinks()
        if self._found is not None:
            check_newest(self.plan, self._found, self.store.url)

    def reserve(self) -> None:
        self.lease.acquire(self.job.name, self.terms.take_over)
        newest = self._found = self.checkpoints.latest()
        if newest is None:
            # So that others find the lease of a first start: by it they see that the job is starting.
            declare(self.store, self.job, self.token)
        else:
            self.check(newest)

    def check(self, newest: Manifest) -> None:
        """Refuse a program that cannot continue the newest commit. Afterwards `plan` is the plan to run."""
        check_alone(newest)
        sizes = self._dropped_sizes(newest)
        self.plan, converted = fitted(
            self._declared,
            newest,
            self.job.n_shards,
            self.job.aliases,
            allow_dropped_state=self.terms.allow_dropped_state,
            sizes=sizes,
        )
        told = {name: conversion.said for name, conversion in converted.items()}
        self.notices = [f"step {name!r}: {said}" for name, said in told.items() if said]
        self.notices += notices(self.plan, newest.operators, self.job.aliases)
        self.notices += [f"step {name!r}: its state is removed, {held}" for name, held in sizes.items()]
        idle = idle_aliases(newest.operators, operator_infos(self.plan), self.job.aliases)
        self.notices += [f"{line} names nothing that is stored: the step begins without state" for line in idle]
        check_void(self.plan, newest, self.terms.drop_unpublished)
        check_unpublished(self.plan, newest, self.terms.drop_unpublished)
        self.notices += dropped_output(newest, self.terms.drop_unpublished)

    def begin(self) -> None:
        self.reserve()
        check_no_move(self.store, self.job.name)
        if self._found is not None:
            self.check_sources(self._found)
        else:  # Later starts need not ask again.
            self.store.check_conditional()
        self._published_before = newest_output(self.plan, self._found)
        first = Manifest(CheckpointId(self.job.name, 1), n_shards=self.job.n_shards, lineage=secrets.token_hex(4))
        self.head = claim(self.checkpoints, self.lease, self.token, first, self.terms.drop_unpublished)
        declare(self.store, self.job, self.token)
        evolve(self)

    def _dropped_sizes(self, newest: Manifest) -> dict[str, str]:
        """Return how much state the steps hold that the program lacks, for messages."""
        reader = StateReader(self.store, newest)
        sizes = {}
        for name in dropped(newest.operators, operator_infos(self.plan), self.job.aliases):
            keys, exact = reader.count(name)
            sizes[name] = f"{'' if exact else 'up to '}{keys:,} {'key' if keys == 1 else 'keys'}"
        return sizes
