"""Find steps whose results depend on the order of messages, behind a source that promises no order. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tidewheel._operators.graph import Graph, Node
from tidewheel._operators.stateless.source import SourceOperator


def order_warnings(graph: Graph) -> Iterator[str]:
    """Yield a warning for each step that depends on an order which one of its sources does not promise."""
    for node in graph.nodes:
        if node.operator.order_matters:
            for source in _unordered_sources(graph, node):
                yield (
                    f"step {node.name!r} ({node.operator.step}) may give other results at every run: source {source!r} does "
                    "not promise an order of its messages. Let the function give the same result for any order, for example "
                    "by comparing times in the messages, or read the data with a source that keeps the order, such as "
                    "sources.files or sources.kafka"
                )


def _unordered_sources(graph: Graph, node: Node) -> list[str]:
    ahead, seen, found = [port.node for port in node.inputs], set[int](), set[str]()
    while ahead:
        number = ahead.pop()
        if number not in seen:
            seen.add(number)
            before = graph.nodes[number]
            ahead += [port.node for port in before.inputs]
            if isinstance(before.operator, SourceOperator) and not before.operator.source.keeps_order:
                found.add(before.name)
    return sorted(found)
