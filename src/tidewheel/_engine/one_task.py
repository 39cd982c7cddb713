"""Run a whole batch in this process, in one task for each level."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import pyarrow as pa

from tidewheel._engine import wire
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.commit import check_reports
from tidewheel._engine.plan import Plan
from tidewheel._engine.report import Report, decode
from tidewheel._engine.task import SourceSplit, TaskIdentity, TaskStep, run_level

MakeStep = Callable[[Plan, BatchSpec, int, TaskIdentity], TaskStep]
"""Makes the task of a level."""


def run_in_one_task(
    plan: Plan, spec: BatchSpec, splits: Sequence[SourceSplit], make_step: MakeStep | None = None
) -> list[Report]:
    """Run all levels of a batch in this process, in one task each, and return the checked reports."""
    spec = msgspec.structs.replace(spec, parallelism=1)
    batches: Iterator[pa.RecordBatch] = iter(())
    levels = range(len(plan.levels))
    for level in levels:
        given = splits if level == 0 else ()
        given_rows = _in_order(batches) if level else batches
        batches = run_level(plan, spec, level, TaskIdentity(0, 0), given_rows, given, make_step=make_step)
    reports = [decode(payload) for payload in wire.reports_in(batches)]
    check_reports(reports, levels, 1)
    return reports


def _in_order(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the rows of all levels before, sorted as a shuffle does. A level sends rows on before its input has ended."""
    rows = pa.Table.from_batches(batches, wire.SCHEMA)
    return iter(rows.sort_by([(column, "ascending") for column in wire.ORDER]).to_batches())
