"""`upgrade=` of windows and joins, values in segments, and state of versions that recorded types as flat fields."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pytest

from tidewheel import Job, StoredJob, session, tumbling
from tidewheel._checkpoint.format_5 import described
from tidewheel._state import time_order
from tidewheel._state.type_change import with_defaults
from tidewheel.checkpoints import Manifest
from tidewheel.errors import GraphError, StateError
from tidewheel.sinks import collect
from tidewheel.testing import MemoryRun

_numbers = itertools.count()


@dataclass
class Price:
    k: str
    at: int
    euros: int = 0


@dataclass
class PriceInCents:
    k: str
    at: int
    cents: int = 0


@dataclass
class Order:
    k: str
    at: int


def in_cents(value: dict[str, Any], version: int, side: str) -> PriceInCents | Order | None:
    assert version == 1
    if side == "left":
        return Order(**value)
    return None if value["euros"] == 13 else PriceInCents(value["k"], value["at"], value["euros"] * 100)


JOINS: dict[str, Callable[..., Any]] = {
    "interval_join": lambda left, right, **options: left.interval_join(
        "j", right, before="9000 ns", after="9000 ns", **options
    ),
    "as_of_join": lambda left, right, **options: left.as_of_join("j", right, how="inner", **options),
    "window_join": lambda left, right, **options: left.window_join("j", right, tumbling("10000 ns"), **options),
}


def joined(url: str, kind: str, price: type, out: Any, **options: Any) -> Job:
    job = Job("joined", state=url, n_shards=2)

    def timed(name: str, value: type) -> Any:
        stream = job.source(name, lambda spark: None, type=value).assign_timestamps(f"t-{name}", "at", unit="ns")
        return stream.limit_out_of_orderness(f"b-{name}", "1 s", max_ahead=None).key_by(f"k-{name}", "k")

    def pair(left: Any, right: Any) -> dict[str, Any]:
        return {"price": right.euros if price is Price else right.cents}

    JOINS[kind](timed("left", Order), timed("right", price), function=pair, **options).sink("out", out)
    return job


@pytest.mark.parametrize("kind", JOINS)
def test_an_upgrade_makes_todays_values_of_those_that_wait_in_a_join(kind):
    url, out = f"memory:upgraded-{next(_numbers)}", collect()
    with MemoryRun(joined(url, kind, Price, out)) as run:
        run.batch({"right": [Price("a", 10, 5), Price("b", 10, 13)]})
    with pytest.raises(StateError, match=r"step 'j': its right value is stored with the field 'euros' .*upgrade="):
        MemoryRun(joined(url, kind, PriceInCents, out))
    with pytest.raises(StateError, match=r"step 'j': its upgrade from version 1 to 2 failed .* key 'a': KeyError"):
        MemoryRun(joined(url, kind, PriceInCents, out, version=2, upgrade=lambda value, version, side: value["x"]))
    with MemoryRun(joined(url, kind, PriceInCents, out, version=2, upgrade=in_cents)) as run:
        run.batch({"left": [Order("a", 12), Order("b", 12)]})
        run.flush()
    assert [record["price"] for record in out.records] == [500], "the value of 'b' was dropped"


def test_values_that_wait_in_segments_are_upgraded_and_divided_again(monkeypatch):
    monkeypatch.setattr(time_order, "SEGMENT_ENTRIES", 4)
    url, out = f"memory:upgraded-{next(_numbers)}", collect()
    with MemoryRun(joined(url, "interval_join", Price, out)) as run:
        run.batch({"right": [Price("a", at, at) for at in range(100, 150)]})
        assert any("segments" in table for table in tables(run))
    with MemoryRun(joined(url, "interval_join", PriceInCents, out, version=2, upgrade=in_cents)) as run:
        assert not any("segments" in table for table in tables(run))
        run.batch({"right": [PriceInCents("a", 99, 1)]})
        run.batch({"left": [Order("a", 120)]})
    found = sorted(record["price"] for record in out.records)
    assert found == [1, *(at * 100 for at in range(100, 150))]


def tables(run: MemoryRun) -> set[str]:
    """Return the tables that have entries."""
    stored = StoredJob("joined", state=run.run.job.state)
    return {each.table for each in stored.diff(1, run.run.head.sequence) if each.added}


@pytest.mark.parametrize("windows", [tumbling("10 ns"), session("10 ns")])
def test_an_upgrade_makes_todays_folded_values_of_open_windows(windows):
    url, out = f"memory:upgraded-{next(_numbers)}", collect()

    def job(add: Any, default: Any, **options: Any) -> Job:
        made = Job("folded", state=url, n_shards=2)
        timed = made.source("in", lambda spark: None, type=dict).assign_timestamps("t", "at", unit="ns")
        keyed = timed.limit_out_of_orderness("b", "1 s", max_ahead=None).key_by("k", "k")
        folded = keyed.window("w", windows, add, default=default, merge=lambda one, other: one, **options)
        folded.map("value", lambda result: {"value": str(result.value)}).sink("out", out)
        return made

    with MemoryRun(job(lambda total, record: total + 1, 0)) as run:
        run.batch({"in": [{"k": "a", "at": 1}, {"k": "a", "at": 2}]})
    changed = {"add": lambda totals, record: [*totals, 7], "default": list}
    with pytest.raises(StateError, match=r"step 'w': its state is stored as int, and the program begins it as list"):
        MemoryRun(job(**changed))
    with MemoryRun(job(**changed, version=2, upgrade=lambda total, version: [total])) as run:
        run.batch({"in": [{"k": "a", "at": 3}]})
        run.flush()
    assert [record["value"] for record in out.records] == ["[2, 7]"]


def test_an_upgrade_of_a_join_that_cannot_be_called_is_refused_in_the_graph():
    with pytest.raises(GraphError, match=r"step 'j': upgrade= is called with a stored value .* and the side"):
        joined("memory:never", "as_of_join", Price, collect(), version=2, upgrade=lambda value, version: value)


# What version 0.1 recorded of a type: name, text, whether it is required, encoded default.


class Pair(NamedTuple):
    paid: int = 0
    due: int = 0


class Turned(NamedTuple):
    due: int = 0
    paid: int = 0


@dataclass
class Spent:
    spent: int = 0


@dataclass
class Total:
    total: int = 0


def kept(url: str, declared: Any, state: Any, out: Any) -> Job:
    job = Job("kept", state=url, n_shards=2)
    keyed = job.source("in", lambda spark: None, type=dict).key_by("k", "k")
    step = keyed.stateful_map("s", lambda k, v, s: (str(s), s or state), state=declared, default=lambda: None)
    step.sink("out", out)
    return job


ZERO = msgspec.msgpack.encode(0)


@pytest.mark.parametrize(
    ("declared", "state", "fields", "after", "found"),
    [
        (
            Pair,
            Pair(5, 2),
            [["paid", "int", False, ZERO], ["due", "int", False, ZERO]],
            Turned,
            "Turned(due=2, paid=5)",
        ),
        (int, 7, [["", "int", True, None]], float, "7.0"),
        (Spent | None, Spent(5), [["", "Spent | none", True, None]], Spent | None, "Spent(spent=5)"),
        (Spent | None, Spent(5), [["", "Spent | none", True, None]], Total | None, "'spent', which is stored"),
        (list[Spent], [Spent(5)], [["", "list[Spent]", True, None]], list[Total], "'spent', which is stored"),
        (Spent, Spent(5), [["spent", "int", False, ZERO]], Total, "is stored with the field 'spent'"),
        (dict[str, int], {"a": 1}, [["", "dict[str, int]", True, None]], dict[str, str], "is stored as int"),
        (Spent, Spent(5), [], Total, "'spent', which is stored"),
    ],
)
def test_state_that_recorded_flat_fields_continues_or_is_refused(declared, state, fields, after, found):
    url, out = f"memory:flat-{next(_numbers)}", collect()
    with MemoryRun(kept(url, declared, state, out)) as run:
        run.batch({"in": [{"k": "a"}]})
        old = {"s": msgspec.structs.replace(run.run.head.operators["s"], values=described(fields))}
        commit(run, run.run.head.replace(operators=old))
    if "(" in found or "." in found:
        with MemoryRun(kept(url, after, None, out)) as run:
            run.batch({"in": [{"k": "a"}]})
        assert out.records[-1]["value"] == found
        return
    with pytest.raises(StateError, match=f"step 's'.*{found}"):
        MemoryRun(kept(url, after, None, out))


def test_an_upgrade_gets_the_recorded_defaults_of_flat_fields():
    stored = described([["spent", "int", True, None], ["inner.limit", "int", False], ["tier", "str", False, b"\xa1a"]])
    fill = with_defaults(stored[0].type)
    assert fill is not None
    assert fill({"spent": 5, "inner": {}}) == {"spent": 5, "inner": {}, "tier": "a"}
    assert fill([5]) == [5], "a record that is stored by position comes as it is"


def commit(run: MemoryRun, manifest: Manifest) -> None:
    """Commit a manifest after the newest one."""
    head = run.run.head
    number = msgspec.structs.replace(head.id, sequence=head.sequence + 1)
    run.run.head = run.run.checkpoints.commit(manifest.replace(id=number, parent=head.sequence))
