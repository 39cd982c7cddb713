"""Graph: the named operators of a job and how they hang together, checked as it is built."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tidewheel._core.text import with_article
from tidewheel._core.user_code import is_typed_in, line_being_run
from tidewheel._operators.base import Operator
from tidewheel._operators.keyed.key_by import KeyBy
from tidewheel._values import Shape
from tidewheel.errors import GraphError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")
"""What jobs and operators may be called: fit for a file name, and for a command line."""


@dataclass(frozen=True)
class Port:
    """One output of a node."""

    node: int
    port: int = 0


@dataclass(frozen=True)
class Node:
    """A named operator, where its inputs come from, and what its outputs look like."""

    id: int
    name: str
    operator: Operator
    inputs: tuple[Port, ...]
    shapes: tuple[Shape, ...]
    key_name: str | None
    """The name of the key's column where the output is keyed, else None."""
    timed: bool | None = None
    """Whether the messages at its outputs have timestamps; None: some may."""
    timestamps: bool = False
    """Whether users see these times as datetimes; else as ns."""
    schemas: tuple[pa.Schema | None, ...] = ()
    """The columns at each output where they are known before the run."""
    retry: tuple[type[Exception], ...] = ()
    """Errors of the step's functions that are transient, besides those that always are."""


def _taken(name: str, first: tuple[str, str], second: tuple[str, str]) -> str:
    """Return what to say where two operators, given by kind and line, have one name."""
    kinds = [f"{with_article(kind)}{f' at {line}' if line else ''}" for kind, line in (first, second)]
    text = (
        f"there are two operators named {name!r} ({' and '.join(kinds)}); "
        "a name is the identity of an operator's state: give one of them another"
    )
    if is_typed_in(first[1]):
        # What a chain of steps declared before the one that failed stays declared.
        text += ". If you entered these steps before, make the job anew, job = Job(…), and enter all its steps again"
    return text


class Graph:
    """The operators of a job in the order they were added, which is an order of the data's flow."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._lines: dict[str, str] = {}
        """By name, the line of the program that added the operator."""

    def add(
        self,
        name: str,
        operator: Operator,
        inputs: tuple[Port, ...] = (),
        retry: tuple[type[Exception], ...] = (),
    ) -> Node:
        """Add an operator. Its name is the identity of its state, so it must be new, and fit for a file name."""
        if not isinstance(name, str) or not name:
            raise GraphError(
                f"{with_article(operator.step)} needs a name: the first argument, a string that is not empty"
            )
        if not NAME.fullmatch(name):
            raise GraphError(
                f"the name {name!r} of {with_article(operator.step)} may have letters, digits, '_', '-' and '.', and begins with "
                "a letter or digit"
            )
        line = line_being_run()
        if name in self._lines:
            other = next(node for node in self.nodes if node.name == name)
            raise GraphError(_taken(name, (other.operator.step, self._lines[name]), (operator.step, line)))
        shapes = tuple(self.shape(port) for port in inputs)
        try:
            operator.check(shapes)
            outputs = operator.shapes(shapes)
            schemas = operator.schemas(tuple(self.nodes[port.node].schemas[port.port] for port in inputs))
            inputs_timed = tuple(self.nodes[port.node].timed for port in inputs)
            if operator.needs_time and False in inputs_timed:
                raise GraphError(
                    "its messages have no timestamps; put event_time before it, as in "
                    '.event_time("at", max_delay="1 minute")'
                )
            timed = operator.timed(inputs_timed)
            timestamps = operator.timestamps(tuple(self.nodes[port.node].timestamps for port in inputs))
        except GraphError as error:
            raise GraphError(f"operator {name!r} ({operator.step}): {error}") from None
        key_name = self._key_name(operator, inputs)
        node = Node(len(self.nodes), name, operator, inputs, outputs, key_name, timed, timestamps, schemas, retry)
        self.nodes.append(node)
        self._lines[name] = line
        return node

    def shape(self, port: Port) -> Shape:
        """Return what the values at an output look like."""
        return self.nodes[port.node].shapes[port.port]

    def _key_name(self, operator: Operator, inputs: tuple[Port, ...]) -> str | None:
        if isinstance(operator, KeyBy):
            return operator.key_name
        return self.nodes[inputs[0].node].key_name if inputs else None

    def consumers(self, port: Port) -> list[tuple[Node, int]]:
        """Return the nodes that read an output, each with the number of its input."""
        return [
            (node, position) for node in self.nodes for position, source in enumerate(node.inputs) if source == port
        ]

    def outputs(self, node: Node) -> Iterator[Port]:
        """Yield the outputs of a node."""
        return (Port(node.id, port) for port in range(node.operator.ports))

    def check(self) -> None:
        """Refuse a graph that cannot run: no source, no sink, an output that leads nowhere."""
        kinds = [node.operator.kind for node in self.nodes]
        if "source" not in kinds:
            raise GraphError("the job has no source; begin with job.source(name, …)")
        for node in self.nodes:
            if node.operator.kind == "sink":
                continue
            if not any(self.consumers(port) for port in self.outputs(node)):
                raise GraphError(
                    f"operator {node.name!r} ({node.operator.step}) leads nowhere; end the stream with .sink(name, …)"
                )
            for port in node.operator.required:
                if not self.consumers(Port(node.id, port)):
                    raise GraphError(
                        f"output {port} of operator {node.name!r} ({node.operator.step}) leads nowhere, and what goes there "
                        "would be lost; give it a sink, discard() if it is not wanted"
                    )

    def fingerprint(self) -> str:
        """Return a digest of names, kinds and edges: two programs with the same one have the same shape."""
        text = "\n".join(
            f"{node.name} {node.operator.kind} {[(self.nodes[p.node].name, p.port) for p in node.inputs]}"
            for node in self.nodes
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def text(self, notes: Mapping[str, str] | None = None) -> str:
        """Return the graph as lines of text, one per operator, with what there is to say of an operator behind it."""
        width = max((len(node.name) for node in self.nodes), default=0)
        lines = []
        for node in self.nodes:
            inputs = ", ".join(map(self._spelled, node.inputs))
            arrow = f" <- {inputs}" if inputs else ""
            note = f", {notes[node.name]}" if notes and node.name in notes else ""
            lines.append(f"{node.name:<{width}}  {node.operator.step}{arrow}{note}")
        return "\n".join(lines)

    def _spelled(self, port: Port) -> str:
        """Return an output for people: the name of its node, and which of its outputs where it has several."""
        node = self.nodes[port.node]
        if node.operator.ports < 2:
            return node.name
        names = node.operator.output_names
        name = names[port.port] if names else f"output {port.port}"
        return f"{node.name} ({name})" if name else node.name

    def unread(self, output: str) -> set[str]:
        """Return the names of the operators that have an output of this name which no step reads."""
        read = {port for node in self.nodes for port in node.inputs}
        return {
            node.name
            for node in self.nodes
            for number, name in enumerate(node.operator.output_names)
            if name == output and Port(node.id, number) not in read
        }

    def mermaid(self) -> str:
        """Return the graph as a Mermaid flow chart."""
        lines = ["flowchart LR"]
        for node in self.nodes:
            left, right = ("[(", ")]") if node.operator.stateful else ("[", "]")
            lines.append(f'    n{node.id}{left}"{node.name}<br/>{node.operator.step}"{right}')
        for node in self.nodes:
            for port in node.inputs:
                keyed = self.nodes[port.node].operator.kind == "key_by"
                lines.append(f"    n{port.node} {'==>' if keyed else '-->'} n{node.id}")
        return "\n".join(lines)
