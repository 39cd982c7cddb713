"""Who reads the sources of a job, as far as the program tells."""

from __future__ import annotations

from tidewheel._connectors.direct import as_chosen, told_readers
from tidewheel._connectors.source import Source
from tidewheel._operators.graph import Graph
from tidewheel._operators.stateless.source import SourceOperator
from tidewheel.errors import ConfigError


def readers(graph: Graph) -> dict[str, str]:
    """Return in words who will read each source, without Spark: the tasks (`arrow`) or Spark, and why."""
    operators = {node.name: node.operator for node in graph.nodes}
    why = {name: _why_spark(each.source) for name, each in operators.items() if isinstance(each, SourceOperator)}
    return told_readers(as_chosen(why))


def _why_spark(source: Source) -> str | None:
    try:
        return source.why_spark()
    except ConfigError as error:
        return f"nothing better is known yet: {error}"
