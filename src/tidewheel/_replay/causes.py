"""Find the step at which two runs of the same batch begin to differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from xxhash import xxh64_intdigest

from tidewheel._engine.batch_spec import BatchSpec
from tidewheel._engine.plan import Plan
from tidewheel._engine.task import TaskIdentity, TaskStep
from tidewheel._operators.graph import Port
from tidewheel._values import Batch
from tidewheel._values.records import field_names, has_fields, optional_field


@dataclass(frozen=True)
class Cause:
    """The first step whose messages differ between two runs of a batch, with the messages of one key that do."""

    step: str
    key: Any
    """The key of the messages; None if the stream has no keys."""
    one: tuple[Any, ...]
    """Values that only one of the runs emitted, as lists and dicts."""
    other: tuple[Any, ...]
    """Values that only the other run emitted."""


Observe = Callable[[frozenset[int]], "Emitted"]
"""Runs the batch once; returns the output of its steps, with the messages of the given steps."""


def causes_of(plan: Plan, names: Iterable[str], one: Observe, other: Observe, samples: int) -> dict[str, Cause]:
    """Return, for sinks whose rows and steps whose state differ between runs, the first step that differs before them.

    Both functions are called twice: to find the steps, and then to find messages of these steps. A name is missing in the
    result if these runs do not differ.
    """
    mine, others = one(frozenset()).digests, other(frozenset()).digests
    found: dict[str, int] = {}
    for name in names:
        node = next((node for node in plan.nodes if node.name == name), None)
        before = () if node is None else sorted(_ancestors(plan, node.id))
        first = next((each for each in before if mine.get(each) != others.get(each)), None)
        if first is not None:
            found[name] = first
    if not found:
        return {}
    kept = frozenset(found.values())
    mine_kept, others_kept = one(kept).kept, other(kept).kept
    return {
        name: _cause(plan.nodes[step].name, mine_kept[step], others_kept[step], samples) for name, step in found.items()
    }


class Emitted:
    """The output of the steps of a batch in any order: a digest of each message, and the messages of some steps."""

    def __init__(self, kept: Collection[int]) -> None:
        """Take the steps whose messages are kept."""
        self.digests: dict[int, Counter[int]] = {}
        self.kept: dict[int, Counter[bytes]] = {step: Counter() for step in kept}

    def make_step(self, plan: Plan, spec: BatchSpec, level: int, task: TaskIdentity) -> TaskStep:
        """Return the task of a level, which adds to this."""
        return _ObservedStep(self, plan, spec, level, task)

    def take(self, other: Emitted) -> None:
        """Add the messages that tasks of another process have added to their copy of this."""
        self.digests, self.kept = other.digests, other.kept

    def add(self, port: Port, batch: Batch) -> None:
        """Add messages."""
        keys = batch.keys if batch.keyed else [None] * len(batch)
        times: Sequence[int | None] = batch.times or [None] * len(batch)
        messages = [
            _encoded((port.port, key, value, time)) for key, value, time in zip(keys, batch.values, times, strict=True)
        ]
        self.digests.setdefault(port.node, Counter()).update(map(xxh64_intdigest, messages))
        if port.node in self.kept:
            self.kept[port.node].update(messages)


class _ObservedStep(TaskStep):
    def __init__(self, emitted: Emitted, plan: Plan, spec: BatchSpec, level: int, task: TaskIdentity) -> None:
        self.observed = emitted
        super().__init__(plan, spec, level, task)

    def emit(self, port: Port, batch: Batch) -> None:
        if len(batch):
            self.observed.add(port, batch)
        super().emit(port, batch)


def _ancestors(plan: Plan, node: int) -> set[int]:
    """Return a step and all steps before it. Steps are numbered in their order."""
    found = {node}
    for each in reversed(plan.nodes[: node + 1]):
        if each.id in found:
            found.update(port.node for port in each.inputs)
    return found


def _cause(step: str, one: Counter[bytes], other: Counter[bytes], samples: int) -> Cause:
    only = [
        [msgspec.msgpack.decode(each) for each in sorted((mine - others).elements())]
        for mine, others in ((one, other), (other, one))
    ]
    if not any(only):
        return Cause(step, None, (), ())
    key = next(message[1] for side in only for message in side)
    values = [tuple(message[2] for message in side if message[1] == key)[:samples] for side in only]
    return Cause(step, key, values[0], values[1])


def _encoded(message: tuple[Any, ...]) -> bytes:
    try:
        return msgspec.msgpack.encode(message, enc_hook=_plain)
    except (TypeError, OverflowError, ValueError):
        return msgspec.msgpack.encode([message[0], repr(message[1]), _text(message[2]), message[3]])


def _plain(value: Any) -> Any:
    if has_fields(type(value)):
        return {name: optional_field(value, name) for name in field_names(value)}
    return _text(value)


def _text(value: Any) -> str:
    """Return a text that is equal for equal values. Python's own text of an object has its address in it."""
    return repr(value) if _has_own_text(type(value)) else f"{type(value).__qualname__} {vars(value)!r}"


def _has_own_text(kind: type) -> bool:
    return any("__repr__" in vars(each) for each in kind.__mro__[:-1])
