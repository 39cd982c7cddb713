"""Plan: a graph cut into levels, with the edges that cross from one level to a later one.

A level is the part of the graph between two shuffles. `key_by` ends a level: the steps behind it run in the task that has the
key's shard. For any graph, the levels of a batch are one linear chain of shuffles: a row for a later level passes through the
levels between.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from tidewheel._cells.live import JobCell
from tidewheel._operators.graph import Graph, Node, Port
from tidewheel._operators.keyed.key_by import KeyBy
from tidewheel._time.frontier import Input
from tidewheel._values import Shape
from tidewheel._values.records import field_types
from tidewheel._values.shape import arrow_type
from tidewheel.errors import GraphError


@dataclass(frozen=True)
class Edge:
    """An output whose readers run at a later level."""

    id: int
    source: Port
    targets: tuple[tuple[int, int], ...]
    """The nodes that read it, each with the number of its input."""
    level: int
    """The level of its readers."""
    keyed: bool
    shape: Shape
    combines: bool
    """Whether its one reader shrinks the stream before the shuffle."""


@dataclass(frozen=True)
class Plan:
    """All that a task needs to know of the program."""

    job: str
    nodes: tuple[Node, ...]
    levels: tuple[tuple[int, ...], ...]
    """Nodes by level, each in the order of the data's flow."""
    edges: tuple[Edge, ...]
    local: dict[Port, tuple[tuple[int, int], ...]]
    """Readers at the same level as the output that they read."""
    dead_letter: int | None = None
    """The sink that takes rejected records."""
    cells: tuple[JobCell[Any], ...] = ()
    """The live configuration that the program reads."""

    @cached_property
    def key_steps(self) -> Mapping[int, frozenset[str]]:
        """The names of the `key_by` that the keys at a node come from, by the node's number: every commit asks."""
        steps: dict[int, frozenset[str]] = {}
        for node in self.nodes:
            before = (steps[port.node] for port in node.inputs)
            steps[node.id] = frozenset((node.name,)) if node.operator.kind == "key_by" else frozenset().union(*before)
        return steps

    def sources(self) -> list[Node]:
        """Return the sources, in the order of their numbers."""
        return [node for node in self.nodes if node.operator.kind == "source"]

    def crossing(self, port: Port) -> list[Edge]:
        """Return the edges that leave an output."""
        return [edge for edge in self.edges if edge.source == port]

    def inputs(self) -> list[Input]:
        """Return the inputs of the job's frontier."""
        inputs = (node.operator.input(node.name) for node in self.nodes)
        return [each for each in inputs if each is not None]

    def clocked(self) -> dict[str, frozenset[str]]:
        """Return the inputs of the job's clock that each source feeds, for the sources that feed one."""
        origins: dict[int, frozenset[str]] = {}
        found: dict[str, frozenset[str]] = {}
        for node in self.nodes:
            given = frozenset().union(*(origins[port.node] for port in node.inputs))
            sources = frozenset((node.name,)) if node.operator.kind == "source" else given
            each = node.operator.input(node.name)
            for source in sources if each is not None else ():
                found[source] = found.get(source, frozenset()) | {node.name}
            # Timestamps behind a clock, such as those of window results, derive from that clock.
            origins[node.id] = sources if each is None else frozenset()
        return found

    def driven_by_time(self) -> bool:
        """Whether anything acts on epochs or schedules."""
        return any(node.operator.driven_by_time for node in self.nodes)


def make_plan(job: str, graph: Graph, dead_letter: int | None = None, cells: tuple[JobCell[Any], ...] = ()) -> Plan:
    """Cut the graph into levels."""
    level: dict[int, int] = {}
    for node in graph.nodes:
        level[node.id] = max(
            (level[port.node] + graph.nodes[port.node].operator.shuffles for port in node.inputs), default=0
        )
    edges: list[Edge] = []
    local: dict[Port, tuple[tuple[int, int], ...]] = {}
    for node in graph.nodes:
        for port in graph.outputs(node):
            readers = graph.consumers(port)
            near = [(reader.id, at) for reader, at in readers if level[reader.id] == level[node.id]]
            if near:
                local[port] = tuple(near)
            far = [(reader, at) for reader, at in readers if level[reader.id] > level[node.id]]
            edges += _edges(len(edges), port, far, level, graph)
    depth = max(level.values(), default=0) + 1
    levels = tuple(tuple(node.id for node in graph.nodes if level[node.id] == number) for number in range(depth))
    return Plan(job, tuple(graph.nodes), levels, tuple(edges), local, dead_letter, cells)


def _edges(first: int, port: Port, readers: list[tuple[Node, int]], level: dict[int, int], graph: Graph) -> list[Edge]:
    """Group the readers of an output: those that combine get an edge of their own, the others share one per level."""
    keyed = graph.nodes[port.node].key_name is not None
    groups: dict[tuple[int, int], list[tuple[Node, int]]] = {}
    for reader, at in readers:
        alone = reader.id if reader.operator.combines else -1
        groups.setdefault((level[reader.id], alone), []).append((reader, at))
    return [
        Edge(
            first + number,
            port,
            tuple((reader.id, at) for reader, at in members),
            to,
            keyed,
            graph.shape(port),
            alone >= 0,
        )
        for number, ((to, alone), members) in enumerate(groups.items())
    ]


_PLAIN_KEYS = (pa.string(), pa.int64(), pa.int32(), pa.int16(), pa.int8())
"""The types of columns whose values are hashed as they stand in the source."""


def source_key(plan: Plan, columns: pa.Schema) -> str | None:
    """Return the column of the source that is the key of every record if nothing else happens at level 0; otherwise None.

    There must be one source, with these columns, which is read by nothing but one `key_by` on a string or integer column: the
    task of each record then follows from that column.
    """
    key = key_column(plan)
    if key is None or key not in columns.names:
        return None
    # A declared type may make another key of the value, such as a float of an integer.
    declared = _declared(plan.sources()[0].shapes[0], key) in (None, pa.string(), pa.int64())
    return key if declared and columns.field(key).type in _PLAIN_KEYS else None


def key_column(plan: Plan) -> str | None:
    """Return the name that is the key if level 0 only reads one source and takes a key by name; otherwise None."""
    # The sink of rejected records reads no step: it has no level of its own.
    first = [plan.nodes[number] for number in plan.levels[0] if number != plan.dead_letter]
    if len(plan.levels) < 2 or len(first) != 2:
        return None
    source, keyed = first
    if source.operator.kind != "source" or not isinstance(keyed.operator, KeyBy):
        return None
    key = keyed.operator.key
    return key if len(plan.crossing(Port(keyed.id))) == 1 and isinstance(key, str) else None


def _declared(shape: Shape, column: str) -> pa.DataType | None:
    """Return the type that a column of records is made, or None where it stays as it is."""
    if shape.kind != "record":
        return None
    with contextlib.suppress(GraphError):
        return arrow_type(field_types(shape.type)[column])
    return None


Schemas = Mapping[Port, pa.Schema | None]


def known_columns(plan: Plan, sources: Mapping[int, pa.Schema]) -> Schemas:
    """Return the columns at every output as far as they are known, given those of the sources, by node.

    Raise a `GraphError` that names the step whose expressions do not fit them.
    """
    schemas: dict[Port, pa.Schema | None] = {}
    for node in plan.nodes:
        try:
            outputs = node.operator.schemas(tuple(schemas.get(port) for port in node.inputs))
        except GraphError as error:
            raise GraphError(f"step {node.name!r} ({node.operator.step}): {error}") from None
        if node.id in sources and node.shapes[0].kind != "record":
            outputs = (sources[node.id],)
        schemas.update((Port(node.id, port), schema) for port, schema in enumerate(outputs))
    return schemas


def columns_read(
    plan: Plan, source: Node, schemas: Schemas | None = None, *, by_code: bool = False
) -> list[str] | None:
    """Return the columns of a source that the program reads, or None for all. Other columns need not be carried.

    With `by_code`, a function reads only the columns that its code provably uses; other columns could only appear in errors.
    """
    columns = columns_read_behind(plan, Port(source.id), schemas or {}, by_code)
    return sorted(columns) if columns else None


def columns_read_behind(
    plan: Plan, port: Port, schemas: Schemas = MappingProxyType({}), by_code: bool = False
) -> set[str] | None:
    """Return the columns of an output that are read, by steps that say which they read; None: perhaps all."""
    wanted: set[str] = set()
    targets = [*plan.local.get(port, ()), *(target for edge in plan.crossing(port) for target in edge.targets)]
    for number, _ in targets:
        columns = _read_by(plan, plan.nodes[number], port, schemas, by_code)
        if columns is None:
            return None
        wanted |= columns
    return wanted


def _read_by(plan: Plan, node: Node, port: Port, schemas: Schemas, by_code: bool) -> set[str] | None:
    reads = node.operator.reads_of(schemas.get(port))
    if reads is None and by_code:
        reads = node.operator.reads_by_code(plan.nodes[port.node].shapes[port.port])
    if reads is None:
        return None
    columns = set(reads.columns)
    for at in reads.passed_on:
        behind = columns_read_behind(plan, Port(node.id, at), schemas, by_code)
        if behind is None:
            return None
        columns |= behind - set(reads.made)
    return columns
