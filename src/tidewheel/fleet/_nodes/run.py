"""A node's run of a job in a fleet, with its own chain and the shards that it adopted."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence

from tidewheel._checkpoint.manifest import Manifest, OperatorInfo
from tidewheel._engine.commit import operator_infos
from tidewheel._engine.continued_sources import job_sources
from tidewheel._engine.declaration import declare
from tidewheel._engine.evolve import continuing, evolve, fitted
from tidewheel._engine.plan import Plan
from tidewheel._engine.program_job import ProgramJob
from tidewheel._engine.run import ChainRun
from tidewheel._operators.stateless.source import SourceOperator
from tidewheel.errors import GraphError, StateError
from tidewheel.fleet._inbox.source import InboxSource
from tidewheel.fleet._nodes.handover import Ledger
from tidewheel.fleet._nodes.ledger import stream_of
from tidewheel.fleet._nodes.runs import Run


class FleetRun(ChainRun):
    """The run that commits the shards that its node has just adopted. It ends when one of them is taken."""

    def __init__(self, job: ProgramJob, plan: Plan, run: Run, ledger: Ledger) -> None:
        """Use a run whose chain exists, and the ledger of its newest record."""
        super().__init__(job, plan, stream_of(job.name, run.name), run.token)
        self._declared = plan
        self.held: frozenset[int] = frozenset(ledger.held)

    def reserve(self) -> None:
        # The program was checked against each shard's state at its adoption; now only check that no state is lost.
        self.recall()
        self.plan = continuing(self._declared, self.head.operators, self.job.aliases)

    def begin(self) -> None:
        self.reserve()
        declare(self.store, self.job, self.token)
        evolve(self)


def check_plan(plan: Plan, job: str) -> InboxSource:
    """Return the source of a program that can run in a fleet; raise for other programs."""
    if len(plan.levels) > 2:
        keyed = [node.name for node in plan.nodes if node.operator.kind == "key_by"]
        raise GraphError(
            f"job {job!r} has more than one keyed level ({', '.join(keyed)}): messages after the second key_by would have to "
            "cross nodes. A fleet runs jobs with one keyed level; run this job on one Spark cluster with `tidewheel run`"
        )
    sources = list(job_sources(plan).values())
    first = sources[0]
    if len(sources) > 1 or not isinstance(first, InboxSource):
        found = ", ".join(source.describe() for source in sources)
        raise GraphError(
            f"job {job!r} reads {found}: in a fleet a job has one source, the fleet's inbox "
            "(tidewheel.sources.inbox), to which events are routed by key"
        )
    return first


def with_inbox(plan: Plan, source: InboxSource) -> Plan:
    """Return the plan with its only source replaced."""
    nodes = tuple(
        dataclasses.replace(node, operator=dataclasses.replace(node.operator, source=source))
        if isinstance(node.operator, SourceOperator)
        else node
        for node in plan.nodes
    )
    return dataclasses.replace(plan, nodes=nodes)


def fingerprint(plan: Plan, n_shards: int) -> str:
    """Return a text that is equal on nodes with the same graph: steps, their connections, and their state types."""
    infos = {name: _agreed(info) for name, info in operator_infos(plan).items()}
    lines = [f"shards {n_shards}"]
    for node in plan.nodes:
        inputs = ",".join(f"{port.node}.{port.port}" for port in node.inputs)
        lines.append(f"{node.name} {node.operator.kind} {inputs} {node.key_name} {infos.get(node.name, '')}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _agreed(info: OperatorInfo) -> str:
    """Return the type of a step's state; defaults of fields may differ between nodes with the same program."""
    values = ", ".join(f"{each.name} {each.type}" for each in info.values)
    return f"{info.kind} {info.codec} {info.version} {info.layout} {values}"


def check_adopted(
    state: Manifest, plan: Plan, n_shards: int, aliases: Mapping[str, Sequence[str]] | None = None
) -> None:
    """Refuse to adopt state that the program cannot continue; `aliases` are the former names of its steps."""
    for operators in (state.operators, *state.former_operators.values()):
        _, converted = fitted(plan, state.replace(operators=operators), n_shards, aliases or {})
        for name in (name for name, how in converted.items() if how.convert is not None and how.said):
            raise StateError(
                f"step {name!r} has other aggregates than the ones in its state, and job {state.id.stream_id!r} is run by "
                "a fleet. A job that runs by itself begins the new ones empty; nodes of a fleet cannot, because nodes with "
                "the old program may hold some of the shards. Give the changed step a new name, which begins empty, or "
                "its old aggregates back"
            )
