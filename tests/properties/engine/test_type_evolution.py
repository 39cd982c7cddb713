"""Random state types that change at random: stored values follow the rules of docs/howto-change.md, or the start is refused.

A type is data here (`Shape`); the classes of each program and its values are made from it. The model of the rules works on shapes
and plain values, and shares no code with the engine.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tidewheel import Job, StoredJob, session, sinks, sliding, tumbling
from tidewheel.errors import StateError
from tidewheel.testing import MemoryRun

_numbers = itertools.count()
SCALARS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "int": (int, (0, 7, -5, 2**40)),
    "float": (float, (0.5, -2.25, 1e9)),
    "str": (str, ("", "a", "zoë")),
    "bool": (bool, (True, False)),
    "bytes": (bytes, (b"", b"\x00x")),
}
BY_NAME, BY_POSITION = ("dataclass", "struct"), ("named_tuple", "array_like")


@dataclass(frozen=True, eq=False)
class Shape:
    """A type: a scalar, a collection of parts, or a record of fields."""

    kind: str
    parts: tuple[Shape, ...] = ()
    fields: tuple[Named, ...] = ()


@dataclass(frozen=True, eq=False)
class Named:
    """A field of a record; the default is a plain value, `...` where the field is required."""

    name: str
    shape: Shape
    default: Any = ...


class Types:
    """The classes of a program; what does not change keeps its class."""

    def __init__(self) -> None:
        self._made: dict[Shape, Any] = {}

    def of(self, shape: Shape) -> Any:
        if shape not in self._made:
            self._made[shape] = self._make(shape)
        return self._made[shape]

    def _make(self, shape: Shape) -> Any:
        parts = [self.of(part) for part in shape.parts]
        match shape.kind:
            case "optional":
                return parts[0] | None
            case "list":
                return list[parts[0]]  # type: ignore[valid-type]
            case "dict":
                return dict[str, parts[0]]  # type: ignore[valid-type]
            case "tuple":
                return tuple[tuple(parts)]  # type: ignore[misc]
            case "dataclass" | "struct" | "named_tuple" | "array_like":
                return self._record(shape)
        return SCALARS[shape.kind][0]

    def _record(self, shape: Shape) -> Any:
        hints = [(each.name, self.of(each.shape)) for each in shape.fields]
        defaults = {each.name: self._default(each) for each in shape.fields if each.default is not ...}
        if shape.kind == "named_tuple":
            kind: Any = NamedTuple("Record", hints)  # type: ignore[misc]
            kind.__new__.__defaults__ = tuple(make() for make in defaults.values())
            kind._field_defaults = {name: make() for name, make in defaults.items()}
            return kind
        make = dataclasses.field if shape.kind == "dataclass" else msgspec.field
        given = [(*each, make(default_factory=defaults[each[0]])) if each[0] in defaults else each for each in hints]
        if shape.kind == "dataclass":
            return dataclasses.make_dataclass("Record", given)
        return msgspec.defstruct("Record", given, array_like=shape.kind == "array_like")

    def _default(self, named: Named) -> Callable[[], Any]:
        return lambda: self.value(named.shape, named.default)

    def value(self, shape: Shape, plain: Any) -> Any:
        """Return the value that a plain one stands for."""
        if shape.kind in SCALARS or plain is None:
            return plain
        match shape.kind:
            case "optional":
                return self.value(shape.parts[0], plain)
            case "list":
                return [self.value(shape.parts[0], each) for each in plain]
            case "dict":
                return {key: self.value(shape.parts[0], each) for key, each in plain.items()}
            case "tuple":
                return tuple(map(self.value, shape.parts, plain))
        return self.of(shape)(**{each.name: self.value(each.shape, plain[each.name]) for each in shape.fields})


def plain_of(shape: Shape, value: Any) -> Any:
    """Return a value as plain data, by the names of its fields."""
    if shape.kind in SCALARS or value is None:
        return value
    match shape.kind:
        case "optional":
            return plain_of(shape.parts[0], value)
        case "list":
            return [plain_of(shape.parts[0], each) for each in value]
        case "dict":
            return {key: plain_of(shape.parts[0], each) for key, each in value.items()}
        case "tuple":
            return list(map(plain_of, shape.parts, value))
    return {each.name: plain_of(each.shape, getattr(value, each.name)) for each in shape.fields}


class Dice:
    """Random shapes, values and changes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def shape(self, depth: int = 3) -> Shape:
        kind = self.random.choice(["scalar", "optional", "list", "dict", "tuple", "record", "record", "record"])
        if depth == 0 or kind == "scalar":
            return Shape(self.random.choice(list(SCALARS)))
        if kind == "record":
            return self.record(depth)
        if kind == "tuple":
            return Shape("tuple", (self.shape(depth - 1), self.shape(depth - 1)))
        inner = self.shape(depth - 1)
        return inner if kind == inner.kind == "optional" else Shape(kind, (inner,))

    def record(self, depth: int, kinds: tuple[str, ...] = (*BY_NAME, *BY_POSITION)) -> Shape:
        names = self.random.sample("abcd", self.random.randint(1, 3))
        return ordered(self.random.choice(kinds), [self.named(name, depth - 1) for name in names])

    def named(self, name: str, depth: int) -> Named:
        shape = self.shape(depth)
        return Named(name, shape, self.plain(shape) if self.random.random() < 0.6 else ...)

    def plain(self, shape: Shape) -> Any:
        if shape.kind in SCALARS:
            return self.random.choice(SCALARS[shape.kind][1])
        if shape.kind == "optional":
            return self.random.choice([None, self.plain(shape.parts[0])])
        if shape.kind == "list":
            return [self.plain(shape.parts[0]) for _ in range(self.random.randint(0, 2))]
        if shape.kind == "dict":
            return {key: self.plain(shape.parts[0]) for key in self.random.sample("xyz", self.random.randint(0, 2))}
        if shape.kind == "tuple":
            return [self.plain(part) for part in shape.parts]
        return {each.name: self.plain(each.shape) for each in shape.fields}

    def changed(self, shape: Shape, fixed: bool = False) -> Shape:
        """Return a shape with one change at a random depth; `fixed`: it stays the record that it is."""
        inner = [*shape.parts, *(each.shape for each in shape.fields)]
        if inner and (not shape.fields or self.random.random() < 0.5):
            at = self.random.randrange(len(inner))
            return self._with_inner(shape, at, self.changed(inner[at]))
        if shape.fields:
            return self._changed_record(shape)
        return shape if fixed else self._changed_scalar(shape)

    def _changed_scalar(self, shape: Shape) -> Shape:
        change = self.random.choice(["widen", "optional", "retype"])
        if change == "widen" and shape.kind == "int":
            return Shape("float")
        return Shape("optional", (shape,)) if change == "optional" else self.shape(1)

    def _with_inner(self, shape: Shape, at: int, inner: Shape) -> Shape:
        if shape.parts:
            if shape.kind == "optional" and inner.kind == "optional":
                return inner
            return replace(shape, parts=(*shape.parts[:at], inner, *shape.parts[at + 1 :]))
        named = shape.fields[at]
        default = named.default if named.default is ... else self.plain(inner)
        fields = (*shape.fields[:at], Named(named.name, inner, default), *shape.fields[at + 1 :])
        return ordered(shape.kind, fields)

    def _changed_record(self, shape: Shape) -> Shape:
        fields = list(shape.fields)
        at = self.random.randrange(len(fields))
        unused = next(name for name in "abcdefghij" if name not in {each.name for each in fields})
        match self.random.choice(["rename", "reorder", "add", "add", "remove", "default", "required"]):
            case "rename":
                fields[at] = replace(fields[at], name=unused)
            case "reorder":
                self.random.shuffle(fields)
            case "add":
                fields.insert(at, self.named(unused, 1))
            case "remove" if len(fields) > 1:
                del fields[at]
            case "default":
                fields[at] = replace(fields[at], default=self.plain(fields[at].shape))
            case "required":
                fields[at] = replace(fields[at], default=...)
        return ordered(shape.kind, fields)


def ordered(kind: str, fields: Any) -> Shape:
    """Return a record; Python wants fields without a default first."""
    return Shape(kind, fields=tuple(sorted(fields, key=lambda each: each.default is not ...)))


# The model: the rules of docs/howto-change.md.


class Refused(Exception):
    """A change that no rule allows."""


def read_as(old: Shape, new: Shape, plain: Any) -> Any:
    """Return what a stored value is to the changed program; raise `Refused` where no rule allows the change, for any value."""
    if old.kind == "optional":
        if new.kind != "optional":
            raise Refused
        return read_as(old.parts[0], new.parts[0], plain)
    if new.kind == "optional":
        return read_as(old, new.parts[0], plain)
    if (old.kind, new.kind) == ("int", "float"):
        return None if plain is None else float(plain)
    if old.kind in SCALARS or new.kind in SCALARS:
        if old.kind != new.kind:
            raise Refused
        return plain
    if old.fields and new.fields and (old.kind in BY_NAME) == (new.kind in BY_NAME):
        return _read_record(old, new, plain)
    if old.kind != new.kind:
        raise Refused
    if old.kind == "tuple":
        found = [
            read_as(*pair, None if plain is None else plain[at])
            for at, pair in enumerate(zip(old.parts, new.parts, strict=True))
        ]
        return None if plain is None else found
    read_as(old.parts[0], new.parts[0], None)  # An empty collection does not make a change right.
    if plain is None:
        return None
    if old.kind == "dict":
        return {key: read_as(old.parts[0], new.parts[0], each) for key, each in plain.items()}
    return [read_as(old.parts[0], new.parts[0], each) for each in plain]


def _read_record(old: Shape, new: Shape, plain: Any) -> Any:
    before = {each.name: each.shape for each in old.fields}
    today = {each.name for each in new.fields}
    if not before.keys() <= today or any(each.default is ... and each.name not in before for each in new.fields):
        raise Refused
    found = {
        each.name: read_as(before[each.name], each.shape, None if plain is None else plain[each.name])
        if each.name in before
        else each.default
        for each in new.fields
    }
    return None if plain is None else found


# The steps: each keeps the values that it is given, as its own type, and gives back what it has kept.


class Kept:
    """One step of a program, which keeps values of a shape."""

    def __init__(self, keyed: Any, number: int, shape: Shape, types: Types) -> None:
        self.keyed, self.name, self.shape, self.types = keyed, f"s{number}", shape, types
        self.given, self.out = dict[str, Any](), list[Any]()

    @property
    def type(self) -> Any:
        return self.types.of(self.shape)

    def named(self, part: str) -> str:
        return f"{self.name}-{part}"

    def value(self, record: dict[str, Any]) -> Any:
        return self.types.value(self.shape, self.given[record["k"]])

    def kept(self, state: Any, record: dict[str, Any]) -> Any:
        return self.value(record) if record["k"] in self.given else state

    def plain(self, value: Any) -> dict[str, Any]:
        return {"plain": repr(plain_of(self.shape, value))}


def _map(step: Kept) -> Any:
    return step.keyed.stateful_map(step.name, lambda k, v, s: (step.kept(s, v),) * 2, state=step.type | None)


def _map_by_default(step: Kept) -> Any:
    begins = step.types.value(step.shape, Dice(0).plain(step.shape))
    return step.keyed.stateful_map(step.name, lambda k, v, s: (step.kept(s, v),) * 2, default=begins)


def _op(step: Kept) -> Any:
    def handle(message: Any, state: Any, output: Any) -> Any:
        kept = step.kept(state, message.value)
        output.emit(kept)
        return kept

    return step.keyed.stateful_op(step.name, handle, state=step.type | None)


def _reduce(step: Kept) -> Any:
    values = step.keyed.map(step.named("value"), partial(step.kept, None))
    return values.reduce(step.name, lambda one, other: other, state=step.type)


def _window(windows: Any) -> Callable[[Kept], Any]:
    def build(step: Kept) -> Any:
        merge = {"merge": lambda one, other: one} if isinstance(windows, type(session("1 s"))) else {}
        folded = step.keyed.window(step.name, windows, step.kept, state=step.type | None, **merge)
        return folded.map(step.named("value"), lambda result: result.value)

    return build


def _join(side: str, join: Callable[[str, Any, Any], Any]) -> Callable[[Kept], Any]:
    """Keep values on one side; a message without a value comes to the other side and asks for it."""

    def build(step: Kept) -> Any:
        given = step.given
        asks, has = step.keyed.branch(step.named("side"), lambda v: v["k"] not in given, lambda v: v["k"] in given)
        values = has.map(step.named("value"), step.value, returns=step.type)
        return join(step.name, *((asks, values) if side == "right" else (values, asks)))

    return build


def _interval(function: Callable[[Any, Any], Any]) -> Callable[[str, Any, Any], Any]:
    return lambda name, one, two: one.interval_join(name, two, before="9 ns", after="9 ns", function=function)


STEPS: dict[str, Callable[[Kept], Any]] = {
    "stateful_map": _map,
    "stateful_map by default": _map_by_default,
    "stateful_op": _op,
    "reduce": _reduce,
    "tumbling": _window(tumbling("10 ns")),
    "sliding": _window(sliding("10 ns", "5 ns")),
    "session": _window(session("10 ns")),
    "interval_join, left": _join("left", _interval(lambda a, b: a)),
    "interval_join, right": _join("right", _interval(lambda a, b: b)),
    "as_of_join": _join("right", lambda name, one, two: one.as_of_join(name, two, function=lambda a, b: b)),
    "window_join": _join(
        "right", lambda name, one, two: one.window_join(name, two, tumbling("10 ns"), function=lambda a, b: b)
    ),
}
RECORDS_ONLY = ("stateful_map by default", *(step for step in STEPS if "join" in step))
"""Steps that keep a value's type only where it is a record by name."""
TYPES, GROUPS = 10, 19
"""How many types one program has, to save starts; and how many programs there are of each kind of step: 2,090 types in all."""


def program(url: str, step: str, shapes: dict[int, Shape], types: Types) -> tuple[Job, list[Kept]]:
    """Return a job with a step for each shape."""
    job = Job("evolving", state=url, n_shards=1)
    timed = job.source("in", lambda spark: None, type=dict).assign_timestamps("at", "at", unit="ns")
    keyed = timed.limit_out_of_orderness("bound", "0 s", max_ahead=None).key_by("k", "k")
    steps = [Kept(keyed, number, shape, types) for number, shape in shapes.items()]
    for each in steps:
        STEPS[step](each).map(each.named("plain"), each.plain).sink(each.named("out"), sinks.collect(each.out))
    return job, steps


def batch(run: MemoryRun, *keys: str) -> None:
    run.batch({"in": [{"k": key, "at": 5} for key in keys]})


@pytest.mark.parametrize("step", STEPS)
@settings(max_examples=GROUPS, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_stored_values_are_read_right_or_the_start_is_refused(step: str, seed: int) -> None:
    dice, types, url = Dice(seed), Types(), f"memory:evolution-{next(_numbers)}"
    only_records = step in RECORDS_ONLY
    shapes = [dice.record(3, BY_NAME) if only_records else dice.shape() for _ in range(TYPES)]
    values = [{key: dice.plain(shape) for key in "xy"} for shape in shapes]
    job, steps = program(url, step, dict(enumerate(shapes)), types)
    for each, given_values in zip(steps, values, strict=True):
        each.given |= given_values
    with MemoryRun(job) as run:
        batch(run, *"xy")
    # The second life finds values that the first one has not written: they lack what it added.
    for life in ("one", "two"):
        for number, before in enumerate(shapes):
            changed = dice.changed(before, fixed=only_records)
            try:
                values[number] = {key: read_as(before, changed, plain) for key, plain in values[number].items()}
            except Refused:
                check_refused(url, step, number, changed, types)
            else:
                shapes[number] = changed
        job, steps = program(url, step, dict(enumerate(shapes)), types)
        with MemoryRun(job) as run:
            batch(run, life)
            if life == "two":
                for each in steps:
                    each.out.clear()
                batch(run, *"xy")
                run.flush()
    for each, expected in zip(steps, values, strict=True):
        found = {record["plain"] for record in each.out} - {"None"}
        assert found == {repr(plain) for plain in expected.values()} - {"None"}, (each.name, each.shape)


def check_refused(url: str, step: str, number: int, changed: Shape, types: Types) -> None:
    """Start a program with the changed step alone, which must be refused, and see that nothing is committed."""
    stored = StoredJob("evolving", state=url).show()
    job, _ = program(url, step, {number: changed}, types)
    others = [f"s{other}" for other in range(TYPES) if other != number]
    with pytest.raises(StateError, match=f"step 's{number}'"):
        MemoryRun(job, allow_dropped_state=others)
    now = StoredJob("evolving", state=url).show()
    assert (now.operators, dict(now.shards)) == (stored.operators, dict(stored.shards))
