"""A copy of a job with other sources and sinks."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidewheel._connectors.memory.collect import Collect, collect
from tidewheel._connectors.source import Source
from tidewheel._operators.graph import Graph, Node
from tidewheel._operators.stateless.sink import SinkOperator
from tidewheel._operators.stateless.source import SourceOperator
from tidewheel._program.job import Job


@dataclass(frozen=True)
class Rewired:
    """A copy of a job, and the records that its sinks collect."""

    job: Job
    outputs: dict[str, list[dict[str, Any]]]


def rewired(job: Job, state: str | None = None, sources: Mapping[str, Source] | None = None) -> Rewired:
    """Return a copy of the job with the given sources, with sinks that collect, and with its state in memory or at a URL.

    The job itself does not change. If one of its sinks already collects, the copy uses it.
    """
    changed = _with_nodes(job, [_replaced(node, sources or {}) for node in job.graph.nodes])
    changed.state = state or f"memory:test-{secrets.token_hex(6)}"
    changed.cells_at = None
    sinks = ((node.name, node.operator.sink) for node in changed.graph.nodes if isinstance(node.operator, SinkOperator))
    return Rewired(changed, {name: sink.records for name, sink in sinks if isinstance(sink, Collect)})


def collecting(job: Job) -> Job:
    """Return a copy of the job whose sinks start with empty lists."""
    return _with_nodes(job, list(map(_collected, job.graph.nodes)))


def _with_nodes(job: Job, nodes: list[Node]) -> Job:
    """Return a copy of the job with other nodes in its graph."""
    changed = copy.copy(job)
    changed.graph = Graph()
    changed.graph._lines = dict(job.graph._lines)
    changed.graph.nodes = nodes
    return changed


def _collected(node: Node) -> Node:
    """Return the node, with a sink that collects if it is a sink."""
    operator = node.operator
    return replace(node, operator=replace(operator, sink=collect())) if isinstance(operator, SinkOperator) else node


def _replaced(node: Node, sources: Mapping[str, Source]) -> Node:
    operator = node.operator
    if isinstance(operator, SinkOperator) and not isinstance(operator.sink, Collect):
        return _collected(node)
    if isinstance(operator, SourceOperator) and node.name in sources:
        return replace(node, operator=replace(operator, source=sources[node.name].declared(operator.shape)))
    return node
