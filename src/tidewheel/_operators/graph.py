"""Graph: the named steps of a job and their connections, checked while it is built."""

from __future__ import annotations

import functools
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
"""The form of names of jobs and steps: usable in file names and on command lines."""


class AutomaticName(str):
    """The name of a step to which the program gave none. It may change with the program, so no state has such a name."""

    __slots__ = ()


def is_automatic(name: str) -> bool:
    """Return whether a name was derived from a step: users cannot write a colon in a name."""
    return ":" in name


@dataclass(frozen=True)
class Port:
    """One output of a node."""

    node: int
    port: int = 0


@dataclass(frozen=True)
class Node:
    """A named step with the sources of its inputs and the shapes of its outputs."""

    id: int
    name: str
    operator: Operator
    inputs: tuple[Port, ...]
    shapes: tuple[Shape, ...]
    key_name: str | None
    """The name of the key's column if the output is keyed, otherwise None."""
    timed: bool | None = None
    """Whether the messages at its outputs have timestamps; None: some may."""
    timestamps: bool = False
    """Whether users see these times as datetimes; otherwise as ns."""
    schemas: tuple[pa.Schema | None, ...] = ()
    """The columns at each output, if they are known before the run."""
    retry: tuple[type[Exception], ...] = ()
    """Errors of the step's functions that are transient, in addition to the built-in ones."""


def _taken(name: str, first: tuple[str, str], second: tuple[str, str]) -> str:
    """Return the error text for two steps, given by kind and line, that have the same name."""
    kinds = [f"{with_article(kind)}{f' at {line}' if line else ''}" for kind, line in (first, second)]
    text = (
        f"there are two steps named {name!r} ({' and '.join(kinds)}); "
        "a name identifies the state of a step: rename one of them"
    )
    if is_typed_in(first[1]):
        # If a step of a chain fails, the earlier steps of the chain stay in the graph.
        text += ". If you ran these lines before, create the job again, job = Job(…), and add all its steps again"
    return text


class Graph:
    """The steps of a job in the order in which they were added, which is also a valid order of processing."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._lines: dict[str, str] = {}
        """The line of the program that added each step, by name."""

    def add(
        self,
        name: str,
        operator: Operator,
        inputs: tuple[Port, ...] = (),
        retry: tuple[type[Exception], ...] = (),
    ) -> Node:
        """Add a step. Its name identifies its state, so it must be unique and usable as a file name."""
        if not isinstance(name, str) or not name:
            raise GraphError(
                f"{with_article(operator.step)} needs a name: pass a non-empty string as the first argument"
            )
        if not NAME.fullmatch(name) and not isinstance(name, AutomaticName):
            raise GraphError(
                f"the name {name!r} of {with_article(operator.step)} may have letters, digits, '_', '-' and '.', and "
                "begins with "
                "a letter or digit"
            )
        name = str(name)  # Reports and history take plain text only.
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
                    "its messages have no timestamps; add event_time before it, as in "
                    '.event_time("at", max_delay="1 minute")'
                )
            timed = operator.timed(inputs_timed)
            timestamps = operator.timestamps(tuple(self.nodes[port.node].timestamps for port in inputs))
        except GraphError as error:
            raise GraphError(f"step {name!r} ({operator.step}): {error}") from None
        key_name = self._key_name(operator, inputs)
        node = Node(len(self.nodes), name, operator, inputs, outputs, key_name, timed, timestamps, schemas, retry)
        self.nodes.append(node)
        self._lines[name] = line
        return node

    def automatic_name(self, step: str, argument: object) -> AutomaticName:
        """Return a name for the next step, from its function or column, or else from its position.

        >>> Graph().automatic_name("map", len), Graph().automatic_name("map", lambda n: n)
        ('map:len', 'map:1')
        """
        function = argument.func if isinstance(argument, functools.partial) else argument
        called = function if isinstance(function, str) else getattr(function, "__name__", "<lambda>")
        position = len(self.nodes) + 1
        if not isinstance(called, str) or called == "<lambda>":
            return AutomaticName(f"{step}:{position}")
        name = f"{step}:{re.sub(r'[^A-Za-z0-9_.-]', '-', called)}"
        return AutomaticName(name if name not in self._lines else f"{name}:{position}")

    def shape(self, port: Port) -> Shape:
        """Return the shape of the values at an output."""
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
        """Raise a `GraphError` if the graph cannot run: no source, no sink, or an output that nothing reads."""
        kinds = [node.operator.kind for node in self.nodes]
        if "source" not in kinds:
            raise GraphError("the job has no source; begin with job.source(name, …)")
        for node in self.nodes:
            if node.operator.kind == "sink":
                continue
            if not any(self.consumers(port) for port in self.outputs(node)):
                raise GraphError(
                    f"step {node.name!r} ({node.operator.step}) has no sink; end the stream with .sink(name, …)"
                )
            for port in node.operator.required:
                if not self.consumers(Port(node.id, port)):
                    raise GraphError(
                        f"output {port} of step {node.name!r} ({node.operator.step}) is not read, so its messages "
                        "would be lost; add a sink, or sinks.discard() if you do not need them"
                    )

    def fingerprint(self) -> str:
        """Return a digest of names, kinds and edges. Programs with the same graph have the same digest."""
        text = "\n".join(
            f"{node.name} {node.operator.kind} {[(self.nodes[p.node].name, p.port) for p in node.inputs]}"
            for node in self.nodes
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def text(self, notes: Mapping[str, str] | None = None) -> str:
        """Return the graph as text, one line per step, each followed by its note if it has one."""
        width = max((len(node.name) for node in self.nodes), default=0)
        lines = []
        for node in self.nodes:
            inputs = ", ".join(map(self._spelled, node.inputs))
            arrow = f" <- {inputs}" if inputs else ""
            note = f", {notes[node.name]}" if notes and node.name in notes else ""
            lines.append(f"{node.name:<{width}}  {node.operator.step}{arrow}{note}")
        return "\n".join(lines)

    def _spelled(self, port: Port) -> str:
        """Return the readable name of an output: its node and, if the node has several outputs, which one."""
        node = self.nodes[port.node]
        if node.operator.ports < 2:
            return node.name
        names = node.operator.output_names
        name = names[port.port] if names else f"output {port.port}"
        return f"{node.name} ({name})" if name else node.name

    def unread(self, output: str) -> set[str]:
        """Return the names of the steps whose output of this name is not read by any step."""
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
