"""Follow the messages of one key to a step: where each comes from, what it does to the state, and where others are dropped.

The steps before the traced one get one message at a time, so everything that a step emits meanwhile comes from that message.
Steps that emit one result for a whole batch get the batch as usual: the trace of their results begins at them. The traced
step gets only the messages of the key. Its state depends on nothing else.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from tidewheel._checkpoint.named_results import with_names
from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.commit import info_of
from tidewheel._engine.plan import Edge, Plan
from tidewheel._engine.task import RAW, SourceSplit, TaskIdentity, TaskStep
from tidewheel._operators.base import Operator
from tidewheel._operators.graph import Node, Port
from tidewheel._operators.keyed.combiner import Combiner
from tidewheel._state.codec import codec_named
from tidewheel._values import Batch
from tidewheel._values.records import field_names, has_fields, optional_field
from tidewheel.errors import NotFound, TidewheelError

_AT_ONCE = frozenset({"stateful_map", "stateful_op", "deduplicate", "ttl_map"})
"""The kinds of stateful steps that give the same results if they process their messages one at a time."""


def is_stepwise(operator: Operator) -> bool:
    """Return whether a step gives the same results if it processes its messages one at a time."""
    return not operator.stateful or operator.kind in _AT_ONCE


@dataclass(frozen=True)
class TracedMessage:
    """A message of a key that reached a step, or was dropped before it."""

    value: Any
    time: int | None
    """Its timestamp in ns, if it has one."""
    source: str | None
    """The source that its record comes from; None if it is the result of a step that combines messages."""
    place: Mapping[str, Any]
    """The place of the record in the source, such as a file and a line, or the name of the step that combined messages."""
    before: Any = None
    """The key's state before the message; None if there is none."""
    after: Any = None
    dropped: str | None = None
    """Which step dropped the message, and why; None if the traced step processed it."""

    def described(self) -> dict[str, Any]:
        """Return the message as plain fields, its records as dicts, so that their fields are shown with their names."""
        plain = {name: _as_dict(getattr(self, name)) for name in ("value", "before", "after")}
        return {**plain, "time": self.time, "source": self.source, "place": self.place, "dropped": self.dropped}


def _as_dict(value: Any) -> Any:
    return {name: optional_field(value, name) for name in field_names(value)} if has_fields(type(value)) else value


@dataclass(frozen=True)
class _Origin:
    source: str | None
    place: Mapping[str, Any]
    number: float = math.inf
    """The number of the record in the batch. Results of steps that combine messages come last."""


@dataclass
class KeyTrace:
    """The trace of one key at one step, over the tasks of a batch."""

    plan: Plan
    step: str
    key: Any
    found: list[tuple[float, TracedMessage]] = field(default_factory=list)
    """The messages, each with the number of its record, in the order of levels."""
    origin: _Origin | None = None
    """The origin of the message that is being processed."""
    sent: dict[int, deque[_Origin | None]] = field(default_factory=dict)
    """The origins of the messages that are between two levels, by edge, in order."""

    def __post_init__(self) -> None:
        """Find the steps on the way to the traced one."""
        self.node = next((node for node in self.plan.nodes if node.name == self.step and node.inputs), None)
        if self.node is None:
            raise NotFound(f"the program has no step {self.step!r} with an input")
        self.nodes, self.ports = {self.node.id}, set[Port]()
        for node in reversed(self.plan.nodes):
            if node.id in self.nodes:
                self.ports.update(node.inputs)
                self.nodes.update(port.node for port in node.inputs)
        self.key_steps = self.plan.key_steps[self.node.id]

    @property
    def messages(self) -> list[TracedMessage]:
        """The messages in the order of their records.

        A message that one branch dropped is left out if it reached the step through another one.
        """
        reached = dict[float, list[Any]]()
        for number, message in self.found:
            if message.dropped is None and not math.isinf(number):
                reached.setdefault(number, []).append(message.value)
        found = [
            (number, message)
            for number, message in self.found
            if message.dropped is None or message.value not in reached.get(number, ())
        ]
        return [message for _, message in sorted(found, key=itemgetter(0))]

    def make_step(self, plan: Plan, spec: BatchSpec, level: int, task: TaskIdentity) -> TaskStep:
        """Return the task of a level, which adds to this trace."""
        return _TracedStep(self, plan, spec, level, task)


class _TracedStep(TaskStep):
    def __init__(self, trace: KeyTrace, plan: Plan, spec: BatchSpec, level: int, task: TaskIdentity) -> None:
        super().__init__(plan, spec, level, task)
        assert trace.node is not None
        self.tracing, self.target = trace, trace.node
        self.nodes = [node for node in self.nodes if node.id in trace.nodes]
        self._emitted: set[Port] = set()
        self._probing = self._reached = False

    @property
    def repeats(self) -> bool:
        return True

    def read_splits(self, splits: Sequence[SourceSplit]) -> Iterator[None]:
        sources, records = self.plan.sources(), itertools.count()
        for number, split in splits:
            if sources[number].id not in self.tracing.nodes:
                continue
            for columns, places in split.located():
                for row, place in enumerate(places):
                    self.tracing.origin = _Origin(sources[number].name, place, next(records))
                    self.deliver(((sources[number].id, 0),), Batch(RAW, columns=columns.slice(row, 1)))
                    self.tracing.origin = None
                    yield

    def receive(self, edge: Edge, batch: Batch) -> None:
        origins = self.tracing.sent[edge.id]
        for position in range(len(batch)):
            self.tracing.origin = origins.popleft()
            self.deliver(edge.targets, batch.take([position]))
        self.tracing.origin = None

    def combiner_of(self, edge: Edge) -> Combiner | None:
        return None if edge.targets[0][0] == self.target.id else super().combiner_of(edge)

    def send(self, edge: Edge, batch: Batch) -> None:
        if not any(number in self.tracing.nodes for number, _ in edge.targets):
            return
        before = self.sent.get(edge.id, 0)
        super().send(edge, batch)
        accepted = self.sent.get(edge.id, 0) - before
        self.tracing.sent.setdefault(edge.id, deque()).extend([self.tracing.origin] * accepted)

    def emit(self, port: Port, batch: Batch) -> None:
        if len(batch) == 0:
            return
        self._emitted.add(port)
        node = self.plan.nodes[port.node]
        if self._probing:
            if not node.operator.shuffles:
                self.deliver(self.plan.local.get(port, ()), batch)
            elif node.name in self.tracing.key_steps:
                self._reached |= self.tracing.key in batch.keys
            return
        outer = self.tracing.origin
        self.tracing.origin = outer or _Origin(None, {"step": node.name})
        super().emit(port, batch)
        self.tracing.origin = outer

    def deliver(self, targets: Iterable[tuple[int, int]], batch: Batch) -> None:
        for number, at in targets:
            if number in self.tracing.nodes:
                for position in range(len(batch)):
                    one = batch if len(batch) == 1 else batch.take([position])
                    self._process(self.plan.nodes[number], at, one)

    def _process(self, node: Node, at: int, one: Batch) -> None:
        if node.id == self.target.id:
            if one.keyed and one.keys[0] == self.tracing.key:
                self._process_traced(node, at, one)
            return
        drops = not node.operator.stateful or node.operator.kind == "deduplicate"
        if self._probing and node.operator.stateful:
            if drops:
                self.emit(Port(node.id), one)
            return
        outer, self._emitted, rejected = self._emitted, set(), self.output.rejected
        super().deliver(((node.id, at),), one)
        if is_stepwise(node.operator):
            self.processes[node.id].on_end_of_data()
        emitted, self._emitted = self._emitted, outer
        if drops and not self._probing and not emitted & self.tracing.ports and self._would_reach(node, one):
            why = "rejected" if self.output.rejected > rejected else _output_name(node, emitted)
            self._add(one, None, None, f"step {node.name!r}" + (f": {why}" if why else ""))

    def _process_traced(self, node: Node, at: int, one: Batch) -> None:
        if self._probing:
            self._reached = True
            return
        before, outer, rejected = self._state(), self._emitted, self.output.rejected
        self._emitted = set()
        super().deliver(((node.id, at),), one)
        self.processes[node.id].on_end_of_data()
        emitted, self._emitted = self._emitted, outer
        late = _output_name(node, emitted) == "late"
        why = "rejected" if self.output.rejected > rejected else "late" if late else ""
        self._add(one, before, self._state(), f"step {node.name!r}: {why}" if why else None)

    def _would_reach(self, node: Node, one: Batch) -> bool:
        """Return whether a message that a step dropped would have reached the traced step with the key."""
        self._probing, self._reached, outer = True, False, self._emitted
        try:
            for port in self.tracing.ports:
                if port.node == node.id:
                    self.emit(port, one)
        except Exception:
            # The dropped message may be one that the next functions cannot process.
            return False
        finally:
            self._probing, self._emitted = False, outer
        return self._reached

    def _add(self, one: Batch, before: Any, after: Any, dropped: str | None) -> None:
        origin = self.tracing.origin or _Origin(None, {})
        time = one.times[0] if one.times else None
        message = TracedMessage(one.values[0], time, origin.source, origin.place, before, after, dropped)
        self.tracing.found.append((origin.number, message))

    def _state(self) -> Any:
        """Return the current state of the key, as tools show it."""
        if not self.target.operator.stateful:
            return None
        current = self.state.opened.current(self.target.name, self.tracing.key)
        if current is None:
            return None
        raw, own = current
        info = info_of(self.target.operator)
        try:
            return with_names(info, codec_named(info.codec)).decode(raw)
        except TidewheelError:
            return None if own is None else own.decode(raw)


def _output_name(node: Node, emitted: set[Port]) -> str:
    """Return the name of the other output that a step gave a message to, if it has names."""
    names = node.operator.output_names
    return next((names[port.port] for port in emitted if port.node == node.id and names), "")
