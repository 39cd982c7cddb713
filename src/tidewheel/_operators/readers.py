"""Which component reads each source of a job."""

from __future__ import annotations

from collections.abc import Mapping

from tidewheel._connectors.source import Source
from tidewheel._operators.graph import Graph
from tidewheel._operators.stateless.source import SourceOperator


def readers(graph: Graph) -> dict[str, str]:
    """Return the reader of each source of a program, see `readers_of`."""
    operators = {node.name: node.operator for node in graph.nodes}
    return readers_of({name: each.source for name, each in operators.items() if isinstance(each, SourceOperator)})


def readers_of(sources: Mapping[str, Source]) -> dict[str, str]:
    """Return a text for the reader of each source: "arrow" for the job's own tasks, or Spark."""
    return {
        name: "arrow" if source.has_reader else "spark, because it is a DataFrame" for name, source in sources.items()
    }
