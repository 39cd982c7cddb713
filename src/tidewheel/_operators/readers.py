"""Who reads the sources of a job."""

from __future__ import annotations

from collections.abc import Mapping

from tidewheel._connectors.source import Source
from tidewheel._operators.graph import Graph
from tidewheel._operators.stateless.source import SourceOperator


def readers(graph: Graph) -> dict[str, str]:
    """Return who reads each source of a program, see `readers_of`."""
    operators = {node.name: node.operator for node in graph.nodes}
    return readers_of({name: each.source for name, each in operators.items() if isinstance(each, SourceOperator)})


def readers_of(sources: Mapping[str, Source]) -> dict[str, str]:
    """Return in words who reads each source: the job's own tasks (`arrow`), or Spark."""
    return {
        name: "arrow" if source.has_reader else "spark, because it is a DataFrame" for name, source in sources.items()
    }
