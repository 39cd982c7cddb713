"""Who reads the sources of a job, as far as the program tells."""

from __future__ import annotations

from tidewheel._connectors.direct import as_chosen, told_readers
from tidewheel._operators.graph import Graph
from tidewheel._operators.stateless.source import SourceOperator
from tidewheel.errors import ConfigError


def readers(graph: Graph) -> dict[str, str]:
    """Return in words who will read each source, without Spark: the tasks (`arrow`) or Spark, and why."""
    operators = {node.name: node.operator for node in graph.nodes}
    sources = {name: each.source for name, each in operators.items() if isinstance(each, SourceOperator)}
    why: dict[str, str | None] = {}
    unknown: dict[str, str] = {}
    for name, source in sources.items():
        try:
            why[name] = source.why_spark()
        except ConfigError:
            why[name], unknown[name] = None, "not known yet"
    return {**told_readers(as_chosen(why)), **unknown}
