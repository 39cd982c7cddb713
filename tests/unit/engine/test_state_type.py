"""The changes of a declared state type that stored state allows."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import msgspec
import pytest

from tidewheel import Job, KeyedStream, Stream, tumbling
from tidewheel._checkpoint.manifest import OperatorInfo
from tidewheel._engine.compatibility import value_changes
from tidewheel._state.type_change import change
from tidewheel._state.type_conversion import converted
from tidewheel._state.type_description import UNDECLARED, Field, StateType, describe, suggested_by
from tidewheel._values.row import row_class
from tidewheel.errors import StateError
from tidewheel.sinks import discard
from tidewheel.testing import MemoryRun

_names = itertools.count()


class Inner(msgspec.Struct):
    cents: int


@dataclass
class Totals:
    count: int = 0
    inner: Inner | None = None
    parts: list[Inner] = field(default_factory=list)


@dataclass
class Empty:
    pass


class Nested(msgspec.Struct):
    inner: Inner
    next: Nested | None = None


def check(before: Any, after: Any) -> None:
    """Compare two declared types as the start of a job does."""
    check_types(describe(before), describe(after))


def check_types(before: StateType, after: StateType) -> None:
    was, now = (OperatorInfo("stateful_map", "msgpack", 1, values=(Field("", each),)) for each in (before, after))
    value_changes("op", was, now)


@pytest.mark.parametrize("declared", [Any, object])
def test_an_unknown_type_is_not_refused(declared):
    check(int, declared)
    check(declared, int)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (int, int),
        (int, float),
        (int, int | None),
        (list[int], list[int]),
        (list[int | str], list[str | int]),
        (dict[str, list[int]], dict[str, list[float]]),
        (tuple[int, str], tuple[float, str | None]),
        (Literal["a"], Literal["a", "b"]),
        (Literal["a"], str),
        (Nested, Nested),
    ],
)
def test_a_type_that_holds_all_stored_values_fits(before, after):
    check(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (int, str),
        (float, int),
        (int | None, int),
        (list[int], list[str]),
        (int, list[int]),
        (list[int], tuple[int, ...]),
        (dict[str, int], dict[int, int]),
        (tuple[int, str], tuple[int, str, int]),
        (dict[str, dict[str, int]], dict[str, dict[str, bytes]]),
        (Inner, dict[str, int]),
        (Literal[1], str),
    ],
)
def test_a_type_that_does_not_is_refused_with_operator_and_both_types(before, after):
    with pytest.raises(
        StateError, match=r"step 'op': .*its state is stored as .*, and the program declares .*upgrade="
    ):
        check(before, after)


def record(**fields: Any) -> Any:
    """Return a record type; a field is its type, or a pair of type and default."""
    return msgspec.defstruct("State", [(name, *(f if isinstance(f, tuple) else (f,))) for name, f in fields.items()])


def test_a_field_may_come_with_a_default():
    check(record(a=int, b=int), record(a=int, b=int, c=(str, "")))


INSIDE: list[tuple[Callable[[Any], Any], str]] = [
    (lambda inner: inner, ""),
    (lambda inner: inner | None, ""),
    (lambda inner: list[inner], r"\[\]\."),
    (lambda inner: dict[str, inner], r"\[\]\."),
    (lambda inner: tuple[int, inner], r"\[1\]\."),
    (lambda inner: record(x=int, y=list[inner | None]), r"y\[\]\."),
]


@pytest.mark.parametrize(("place", "path"), INSIDE)
@pytest.mark.parametrize(
    ("after", "told"),
    [
        (record(a=int), "its state is stored with the field '{}b' .*, which the program no longer declares.*version="),
        (record(a=int, c=(int, 0)), "stored with the field '{}b' "),
        (record(a=int, b=int, c=int), "with the field '{}c' .*, which the stored state lacks; give it a default"),
        (record(a=int, b=str), "the field '{}b' of its state is stored as int, and the program declares str"),
    ],
)
def test_a_changed_record_is_refused_with_its_path(place, path, after, told):
    with pytest.raises(StateError, match=told.format(path)):
        check(place(record(a=int, b=int)), place(after))


def tagged(name: str, array_like: bool, **fields: Any) -> Any:
    given = [(each, kind, 0) for each, kind in fields.items()]
    return msgspec.defstruct(name, given, tag=name.lower(), array_like=array_like)


@pytest.mark.parametrize("array_like", [False, True])
def test_members_of_a_tagged_union_are_converted_each_by_its_own_type(array_like):
    paid, due = tagged("Paid", array_like, a=int, b=int), tagged("Due", array_like, c=int)
    turned = tagged("Paid", array_like, b=int, a=float, x=int)
    found = change(describe(list[paid | due]), describe(list[due | turned]))
    raw = msgspec.msgpack.encode([paid(1, 2), due(3)])
    after = raw if found.convert is None else converted(raw, found.convert)
    assert msgspec.msgpack.decode(after, type=list[due | turned]) == [turned(2, 1.0, 0), due(3)]
    with pytest.raises(StateError, match="stored as"):
        check(list[paid | due], list[paid])


@dataclass
class Node:
    value: int
    next: Node | None = None


@dataclass
class ChangedNode:
    value: float
    next: ChangedNode | None = None
    tag: str = "new"


def test_a_type_that_contains_itself_is_compared_at_every_level():
    found = change(describe(Node), describe(ChangedNode))
    raw = msgspec.msgpack.encode(Node(1, Node(2)))
    after = raw if found.convert is None else converted(raw, found.convert)
    assert msgspec.msgpack.decode(after, type=ChangedNode) == ChangedNode(1.0, ChangedNode(2.0))
    with pytest.raises(StateError, match="field 'tag'"):
        check(ChangedNode, Node)


def test_a_record_that_is_no_longer_declared_is_read_as_a_dict():
    check(record(a=int, b=record(c=int)), record(a=int, b=(Any, None)))
    with pytest.raises(StateError, match=r"declare set\[int\] again"):
        check(record(a=int, b=record(c=set[int])), record(a=int, b=(Any, None)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (suggested_by(before), suggested_by(after))
        for before, after in [(0, {}), (0, ""), (b"", ""), ([], {}), (list, set), (dict[str, int], list[str]), ((), [])]
    ]
    + [
        (suggested_by(0), describe(dict[str, int])),
        (suggested_by(1.5), describe(int)),
        (describe(dict[str, int]), suggested_by(0)),
        (suggested_by(""), describe(record(a=(int, 0)))),
        (describe(record(a=int)), suggested_by("")),
        (suggested_by(0), suggested_by(datetime(2026, 3, 1))),
        (suggested_by(datetime), suggested_by(date)),
        (suggested_by(0.5), suggested_by(Decimal(0))),
        (suggested_by({}), suggested_by(Counter)),
        (suggested_by([]), suggested_by(deque(maxlen=3))),
        (suggested_by(row_class(("a",))(1)), suggested_by({})),
    ],
)
def test_a_default_of_another_plain_type_is_refused(before, after):
    with pytest.raises(StateError, match=r"step 'op': its state is stored as .*, and the program .*upgrade="):
        check_types(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (suggested_by(0), suggested_by(1.5)),
        (suggested_by(1.5), suggested_by(0)),
        (suggested_by({}), suggested_by(dict)),
        (suggested_by({}), describe(dict[str, int])),
        (suggested_by({}), describe(record(a=int))),
        (suggested_by(""), describe(Literal["a"])),
        (suggested_by(0), describe(int | str)),
        (suggested_by(0), describe(float)),
        (describe(int | None), suggested_by(0)),
        (describe(dict[str, int]), suggested_by({})),
        (describe(record(a=int)), suggested_by({})),
        (UNDECLARED, suggested_by({})),
        (suggested_by(0), suggested_by(Decimal(0))),
        (suggested_by(Decimal(0)), describe(Decimal)),
        (suggested_by(Counter()), suggested_by({})),
        *(
            (suggested_by(before), describe(after))
            for before, after in [(0, Decimal), (0.0, Decimal), ("", datetime), ("", UUID), (datetime.min, int)]
        ),
        (suggested_by(0), UNDECLARED),
    ],
)
def test_a_default_of_the_same_plain_type_always_fits(before, after):
    check_types(before, after)


@pytest.mark.parametrize("default", [None, lambda: 0, Totals, Totals()])
def test_a_changed_default_does_not_decide_the_type(default):
    assert suggested_by(default) == UNDECLARED


def job(url: str, declared: Any, **options: Any) -> Job:
    made = Job("typed", state=url, n_shards=4)
    keyed = made.source("in", lambda spark: None).key_by("k", "user")
    keyed.stateful_map("sum", lambda k, v, s: (None, s), state=declared, default=declared(), **options).sink(
        "o", discard()
    )
    return made


def test_a_program_whose_state_type_changed_is_refused_at_the_start():
    url = f"memory:typed-{next(_names)}"
    with MemoryRun(job(url, int)) as run:
        run.batch({"in": [{"user": "a"}]})
    with pytest.raises(StateError, match="step 'sum': its state is stored as int, and the program declares str"):
        MemoryRun(job(url, str))
    with MemoryRun(job(url, str, version=2, upgrade=lambda state, version: str(state))) as run:
        assert [str(each.type) for each in run.run.head.operators["sum"].values] == ["str"]


def job_by_default(url: str, default: Any, **options: Any) -> Job:
    made = Job("told", state=url, n_shards=4)
    keyed = made.source("in", lambda spark: None).key_by("k", "user")
    keyed.stateful_map("sum", lambda k, v, s: (None, s), default=default, **options).sink("o", discard())
    return made


def test_a_program_whose_default_is_of_another_type_is_refused_at_the_start():
    url = f"memory:told-{next(_names)}"
    with MemoryRun(job_by_default(url, 0)) as run:
        run.batch({"in": [{"user": "a"}]})
    told = "step 'sum': its state is stored as int, and the program begins it as dict; begin it as the old type; .*upgrade="
    with pytest.raises(StateError, match=told):
        MemoryRun(job_by_default(url, {}))
    with MemoryRun(job_by_default(url, {}, version=2, upgrade=lambda state, version: {"n": state})) as run:
        assert [str(each.type) for each in run.run.head.operators["sum"].values] == ["dict"]


def test_state_without_a_recorded_default_continues_and_records_it():
    url = f"memory:told-{next(_names)}"
    with MemoryRun(job_by_default(url, lambda: 0)) as run:
        run.batch({"in": [{"user": "a"}]})
        assert run.run.head.operators["sum"].values == (Field("", UNDECLARED),)
    with MemoryRun(job_by_default(url, 0)) as run:
        run.batch({"in": [{"user": "a"}]})
    with pytest.raises(StateError, match="stored as int"):
        MemoryRun(job_by_default(url, ""))


def changed(before: Callable[[KeyedStream], Stream], after: Callable[[KeyedStream], Stream]) -> MemoryRun:
    """Run one program, and begin the other one on its state."""
    url = f"memory:changed-{next(_names)}"

    def made(step: Callable[[KeyedStream], Stream]) -> Job:
        job = Job("changed", state=url, n_shards=4)
        events = job.source("in", lambda spark: None, type=dict).assign_timestamps("at", "at", unit="s")
        step(events.limit_out_of_orderness("bound", "0 s").key_by("k", "user")).sink("o", discard())
        return job

    with MemoryRun(made(before)) as run:
        run.batch({"in": [{"user": "a", "at": 5}]})
    return MemoryRun(made(after))


def mapped(default: Any, **options: Any) -> Callable[[KeyedStream], Stream]:
    return lambda keyed: keyed.stateful_map("step", lambda k, v, s: (None, s), default=default, **options)


def folded(default: Any, **options: Any) -> Callable[[KeyedStream], Stream]:
    return lambda keyed: keyed.window("step", tumbling("10 s"), lambda s, v: s, default=default, **options)


def counted(keyed: KeyedStream) -> Stream:
    return keyed.window("step", tumbling("10 s"), lambda s, v: 1 if isinstance(s, Empty) else s + 1, default=Empty())


def reduced(keyed: KeyedStream) -> Stream:
    return keyed.map("times", lambda event: event["at"]).reduce("step", max)


def expiring(keyed: KeyedStream) -> Stream:
    return keyed.ttl_map("step", lambda message, entries: entries.put("x", 1, expires=message.time + 10**12))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (mapped(0), mapped(Totals()), r"stored as int, and the program begins it as Totals\(count: int"),
        (mapped(0), mapped(Totals), r"stored as int, and the program begins it as Totals\(count: int"),
        (
            mapped(0),
            mapped(UUID(int=0), state=UUID),
            "key 'a': stored state does not fit the declared type UUID .*upgrade=",
        ),
        (mapped("soon"), mapped(UUID(int=0), state=UUID), "key 'a': stored state does not fit the declared type UUID"),
        (mapped(Totals()), mapped(Empty()), "stored with the field 'count' .*, which the program no longer declares"),
        (
            mapped(Totals(), state=Totals),
            mapped(Totals()),
            r"stored as Totals\(.*, and the program begins it as Totals\(.*; declare Totals\(.* again",
        ),
        (
            mapped(lambda: 0),
            mapped("", state=str),
            "key 'a': stored state does not fit the declared type str .*upgrade=",
        ),
        (
            mapped(set(), state=set[int]),
            mapped(set()),
            r"stored as set\[int\], and the program begins it as set; declare set\[int\] again.*upgrade=",
        ),
        (reduced, mapped({}), "key 'a': .*the state begins as a dict"),
        (mapped(lambda: 0), mapped(""), "key 'a': .*the state begins as a str"),
        (folded(Totals()), folded(record(count=(int, 0))()), "stored with the field 'inner' .*would be lost"),
        (folded(0), folded({}), "stored as int, and the program begins it as dict.*a new name"),
        (folded(0), folded(Totals(), state=Totals), r"stored as int, and the program declares Totals\("),
        (expiring, mapped(0), "was made by ttl_map and is now made by stateful_map: their states differ"),
        (mapped(0), folded(0), "was made by stateful_map and is now made by window: their states differ"),
    ],
)
def test_every_kind_of_state_is_compared_with_the_stored_type(before, after, told):
    with pytest.raises(StateError, match=f"step 'step'.*{told}"):
        changed(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (mapped(0), mapped(None)),
        (mapped(lambda: 0), mapped(lambda: "")),
        (mapped(lambda: 0), mapped(datetime.min)),
        (mapped(lambda: 0.5), mapped(Decimal(0))),
        (mapped(lambda: {}), mapped(Counter())),
        (mapped(lambda: 0), mapped(Empty())),
        (mapped(0), mapped(Decimal(0), state=Decimal)),
        (mapped(0.0), mapped(Decimal(0), state=Decimal)),
        (mapped("2026-03-01T00:00:00Z"), mapped(datetime.min, state=datetime)),
        (mapped(str(UUID(int=7))), mapped(UUID(int=0), state=UUID)),
        (mapped(Totals(3)), mapped(Totals())),
        (mapped(Totals(3)), mapped({})),
        (folded(Totals()), folded(Totals(), state=Totals)),
        (mapped(set()), mapped(set(), state=set[int])),
        (mapped((0, 1)), mapped((0, 1), state=tuple[int, int])),
        (mapped(Totals()), mapped(Totals, state=Totals)),
        (mapped(0, state=int), mapped(0.5, state=float)),
        (reduced, mapped(0)),
        (counted, counted),
        (folded(0), folded(0)),
        (folded(0, state=int), folded(0, state=float)),
    ],
)
def test_a_program_that_can_continue_the_stored_state_is_accepted(before, after):
    with changed(before, after) as run:
        run.batch({"in": [{"user": "a", "at": 6}]})


def test_an_upgrade_error_on_attributes_explains_that_state_is_a_dict():
    upgrade = {"version": 2, "upgrade": lambda state, version: Totals(state.count)}
    with pytest.raises(StateError, match=r"step 'step'.*comes to upgrade= as a dict: write state\['count'\]"):
        changed(mapped(Totals()), mapped(Totals(), **upgrade))
