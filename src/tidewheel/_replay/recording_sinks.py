"""Sinks that keep the rows of a batch that runs again, and publish nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pyarrow as pa

from tidewheel._connectors.sink import Publication, Sink, SinkPartition, Staging
from tidewheel._engine.plan import Plan
from tidewheel._operators.stateless.sink import SinkOperator

Rows = dict[str, list[dict[str, Any]]]
"""The rows of each sink."""


def recording(plan: Plan, rows: Rows) -> Plan:
    """Return the plan with sinks that add their rows to `rows`."""
    nodes = tuple(
        dataclasses.replace(
            node, operator=dataclasses.replace(node.operator, sink=_RecordingSink(rows, node.operator.sink))
        )
        if isinstance(node.operator, SinkOperator)
        else node
        for node in plan.nodes
    )
    return dataclasses.replace(plan, nodes=nodes)


def comparable(row: dict[str, Any]) -> bytes:
    """Return a row as bytes: equal rows give equal bytes."""
    return msgspec.msgpack.encode(row, enc_hook=repr)


class _RecordingSink(Sink[Any]):
    """Takes rows and publishes nothing."""

    guarantee = "at least once"

    def __init__(self, rows: Rows, replaced: Sink[Any]) -> None:
        self._rows = rows
        self.minds_absent_fields = replaced.minds_absent_fields  # type: ignore[misc]

    def open(self, staging: Staging) -> SinkPartition:
        return _RecordingPartition(self._rows.setdefault(staging.sink, []))

    def publish(self, publication: Publication) -> None:
        """Do nothing: a second run publishes nothing."""


class _RecordingPartition(SinkPartition):
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def write(self, columns: pa.RecordBatch) -> None:
        self._rows += columns.to_pylist()

    def prepare(self) -> bytes | None:
        return None
