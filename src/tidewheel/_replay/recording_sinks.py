"""Sinks that keep the rows of a batch that runs again, and publish nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import msgspec

from tidewheel._checkpoint.names import folder
from tidewheel._connectors.sink import Publication, Sink, SinkPartition, Staging
from tidewheel._connectors.staging import StagedRecords, published_batches
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.commit import staged_outputs
from tidewheel._engine.plan import Plan
from tidewheel._engine.report import Report
from tidewheel._operators.stateless.sink import SinkOperator
from tidewheel._storage import open_store
from tidewheel._values.columns import records

Rows = dict[str, list[dict[str, Any]]]
"""The rows of each sink."""


def recording(plan: Plan) -> Plan:
    """Return the plan with sinks that stage their rows, so that `rows_of` finds them."""
    nodes = tuple(
        dataclasses.replace(node, operator=dataclasses.replace(node.operator, sink=_RecordingSink(node.operator.sink)))
        if isinstance(node.operator, SinkOperator)
        else node
        for node in plan.nodes
    )
    return dataclasses.replace(plan, nodes=nodes)


def rows_of(spec: BatchSpec, reports: Iterable[Report]) -> Rows:
    """Return the rows that the tasks of a batch have staged."""
    store = open_store(spec.state).at(folder(spec.stream))
    return {
        output.sink: [
            row
            for batch in published_batches(
                Publication(store, spec.stream, output.sink, spec.sequence, output.tokens, None)
            )
            for row in records(batch)
        ]
        for output in staged_outputs(reports)
    }


def comparable(row: dict[str, Any]) -> bytes:
    """Return a row as bytes: equal rows give equal bytes."""
    return msgspec.msgpack.encode(row, enc_hook=repr)


class _RecordingSink(Sink[Any]):
    """Stages rows and publishes nothing."""

    guarantee = "at least once"

    def __init__(self, replaced: Sink[Any]) -> None:
        self.distinguishes_absent_fields = replaced.distinguishes_absent_fields  # type: ignore[misc]

    def open(self, staging: Staging) -> SinkPartition:
        return StagedRecords(staging)

    def publish(self, publication: Publication) -> None:
        """Do nothing: a second run publishes nothing."""
