"""Checks of event time before a job runs: whether the clock advances, and for which messages it waits. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidewheel._operators.graph import Graph, Node, Port
from tidewheel._operators.timestamps.assign_timestamps import AssignTimestamps
from tidewheel._operators.timestamps.generate_epochs import LATE
from tidewheel.errors import GraphError


def check_clock(graph: Graph) -> None:
    """Raise a `GraphError` if a step waits for a clock that no step advances."""
    text = missing_clock(graph)
    if text is not None:
        raise GraphError(text)


def missing_clock(graph: Graph) -> str | None:
    """Return the error text for a step that waits for a clock that no step advances; None if there is none."""
    waiting = next((node for node in graph.nodes if node.operator.waits_for_epochs), None)
    if waiting is None or _clocks(graph):
        return None
    return (
        f"{_called(waiting)}: no step of the program advances the clock, so {waiting.operator.waits_for_epochs} before "
        f"the end of a bounded run (--until end, until='end'). {_line_to_add(graph, waiting)}"
    )


def check_lateness(graph: Graph) -> None:
    """Raise a `GraphError` if a window should include late messages and none can reach it."""
    for node in graph.nodes:
        if node.operator.takes_late and not any(_brings_late(graph, port) for port in _ways(graph, node, _ends_late)):
            clocks = {graph.nodes[port.node].name for port in _ways(graph, node, _ends_late) if _is_clock(graph, port)}
            raise GraphError(
                f"{_called(node)}: no late messages can reach it, so allowed_lateness= has no effect: they are in "
                ".late of "
                f'{" and ".join(map(repr, sorted(clocks)))}. Add them, everything = on_time.union("all", on_time.late), and '
                "continue with everything; or remove allowed_lateness"
            )


def clock_warnings(graph: Graph) -> Iterator[str]:
    """Yield warnings: steps without a clock, and messages that the clock does not wait for."""
    has_clock = bool(_clocks(graph))
    for node in graph.nodes:
        amiss = node.operator.wants_epochs
        if not has_clock and amiss:
            yield (
                f"{_called(node)}: no step of the program advances the clock, so {amiss}. {_line_to_add(graph, node)}"
            )
        elif has_clock and node.operator.needs_time and node.operator.driven_by_time:
            ports = _not_waited_for(graph, node)
            ports += [each for port in ports for each in _ways(graph, graph.nodes[port.node], _is_clock)]
            sources = sorted({graph.nodes[port.node].name for port in ports if _is_source(graph, port)})
            if sources:
                yield (
                    f"{_called(node)}: the messages of source {' and '.join(map(repr, sources))} pass no event_time, "
                    "limit_out_of_orderness or generate_epochs before it, so the clock does not wait for them, and "
                    "those "
                    f"that are behind the clock are late. {_line_to_add(graph, node)}"
                )


def _called(node: Node) -> str:
    return f"step {node.name!r} ({node.operator.step})"


def _line_to_add(graph: Graph, node: Node) -> str:
    """Return the line to add and the steps after which to add it: those that set times but advance no clock."""
    times = sorted(graph.nodes[port.node].name for port in _not_waited_for(graph, node) if _gives_times(graph, port))
    where = " and behind ".join(map(repr, times)) or "assign_timestamps"
    return (
        f'Add limit_out_of_orderness after {where}: timed = timed.limit_out_of_orderness("bound", "1 minute"); its late '
        "messages are in timed.late"
    )


def _clocks(graph: Graph) -> list[Node]:
    """Return the steps that advance the clock."""
    return [node for node in graph.nodes if _moves_clock(node)]


def _is_clock(graph: Graph, port: Port) -> bool:
    return _moves_clock(graph.nodes[port.node])


def _moves_clock(node: Node) -> bool:
    return node.operator.input(node.name) is not None


def _not_waited_for(graph: Graph, node: Node) -> list[Port]:
    """Return the steps that set the times of messages for which no clock waits, in this branch or another.

    If no step sets their times, return their source.
    """
    taken_in = {port for clock in _clocks(graph) for port in _ways(graph, clock, _begins_times)}
    ways = _ways(graph, node, lambda graph, port: _is_clock(graph, port) or _gives_times(graph, port))
    begins = [port for port in ways if _gives_times(graph, port) or _is_source(graph, port)]
    return [port for port in begins if port not in taken_in]


def _begins_times(graph: Graph, port: Port) -> bool:
    """Return whether clocks after this output use other times than clocks before it."""
    return _gives_times(graph, port) or graph.nodes[port.node].operator.holds_back


def _gives_times(graph: Graph, port: Port) -> bool:
    return isinstance(graph.nodes[port.node].operator, AssignTimestamps)


def _is_source(graph: Graph, port: Port) -> bool:
    return graph.nodes[port.node].operator.kind == "source"


def _brings_late(graph: Graph, port: Port) -> bool:
    """Return whether messages of this output may be behind the clock, whatever its input is."""
    operator = graph.nodes[port.node].operator
    if _is_clock(graph, port):
        return port.port == LATE
    # New times can be any times. A window that accepts late messages emits corrections with past times.
    return _is_source(graph, port) or _gives_times(graph, port) or operator.takes_late


def _ends_late(graph: Graph, port: Port) -> bool:
    """Return whether the steps before this output do not affect how late its messages are."""
    return _is_clock(graph, port) or _brings_late(graph, port)


def _ways(graph: Graph, node: Node, ends: Callable[[Graph, Port], bool]) -> list[Port]:
    """Return the outputs on all paths to a node, back to the sources or to the outputs that end a path."""
    ahead, passed = list(node.inputs), dict[Port, None]()
    while ahead:
        port = ahead.pop()
        if port not in passed:
            passed[port] = None
            if not ends(graph, port):
                ahead += graph.nodes[port.node].inputs
    return list(passed)
