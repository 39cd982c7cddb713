"""A program changes its state version or the names of its steps: the state follows, or the start is refused."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from support.internals import open_store, states
from tidewheel import Job, RunOptions, StoredJob
from tidewheel._checkpoint.tools.state_reader import StateReader
from tidewheel._state.type_change import change
from tidewheel._state.type_description import describe
from tidewheel.errors import ConfigError, GraphError, StateError
from tidewheel.sinks import collect, discard
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun


@dataclass
class Total:
    amount: int = 0
    times: int = 0
    currency: str = "EUR"


@dataclass
class Plain:
    amount: int = 0


def add(key: str, record: dict, total: Total) -> tuple[int, Total]:
    return total.amount, Total(total.amount + record["amount"], total.times + 1, total.currency)


def total(
    url: str, name: str = "total", function=lambda key, record, n: (n, n + record["amount"]), out=None, **options
) -> Job:
    job = Job("orders", state=url, n_shards=4)
    stream = job.source("in", iterable([]), type=dict).key_by("by", lambda record: record["user"])
    stream.stateful_map(name, function, **{"default": 0, **options}).sink("out", out or collect())
    return job


def send(job: Job, *records: tuple[str, int]) -> None:
    with MemoryRun(job, parallelism=2) as run:
        run.batch({"in": [{"user": user, "amount": amount} for user, amount in records]})


@pytest.fixture
def url(tmp_path) -> str:
    return f"file://{tmp_path}/state"


def test_fields_with_defaults_may_be_added(url):
    send(total(url, function=lambda key, record, state: (None, {"amount": record["amount"]}), default=dict), ("ada", 3))
    out = collect()
    send(total(url, function=add, default=Total, out=out), ("ada", 4))
    assert out.records[-1]["value"] == 3
    assert StoredJob("orders", state=url).get("total", "ada").value == {"amount": 7, "times": 1, "currency": "EUR"}


def test_an_upgrade_makes_todays_state_of_every_key_once(url):
    send(total(url), *((f"u{n}", n) for n in range(1, 30)))
    seen = []

    def upgrade(state, version):
        seen.append(version)
        return None if state == 5 else Total(state, 1)

    job = total(url, function=add, default=Total, version=3, upgrade=upgrade)
    send(job, ("u7", 100))
    send(job, ("u7", 1000))
    assert seen == [1] * 29
    stored = StoredJob("orders", state=url)
    assert stored.show().operators["total"].version == 3
    assert [found.kind for found in stored.list()].count("upgrade") == 1
    held = dict(stored.scan("total", type=Total))
    assert held.pop("u7") == Total(1107, 3)
    assert held == {f"u{n}": Total(n, 1) for n in range(1, 30) if n not in (5, 7)}


@dataclass
class Bigger:
    amount: int = 0
    biggest: int = 0
    note: str = ""


@dataclass
class Biggest:
    biggest: int = 0


def test_an_upgrade_gets_the_defaults_of_fields_that_were_added_before_it(url):
    """A key that no message has touched since is stored without them."""

    def first(key: str, record: dict, state: Plain) -> tuple[None, Plain]:
        return None, Plain(record["amount"])

    def second(key: str, record: dict, state: Bigger) -> tuple[None, Bigger]:
        return None, Bigger(record["amount"], record["amount"])

    def third(key: str, record: dict, state: Biggest) -> tuple[None, Biggest]:
        return None, state

    send(total(url, function=first, default=Plain), ("ada", 3), ("bob", 4))
    send(total(url, function=second, default=Bigger), ("ada", 5))
    seen = []

    def upgrade(state: dict, version: int) -> Biggest:
        seen.append(state)
        return Biggest(state["biggest"])

    send(total(url, function=third, default=Biggest, version=2, upgrade=upgrade), ("ada", 1))
    assert dict(StoredJob("orders", state=url).scan("total", type=Biggest)) == {"ada": Biggest(5), "bob": Biggest(0)}
    assert [state["note"] for state in seen] == ["", ""], "the field is gone, and it had a default"


@dataclass
class Limited:
    amount: int = 0
    limit: int = 10


@dataclass
class Unlimited:
    amount: int = 0
    limit: int = 1000


def test_an_upgrade_gets_the_defaults_of_the_program_that_stored_the_state(url):
    """Today's default is what new keys begin with; keys that were there had the one of their time."""

    def limited(key: str, record: dict, state: Limited) -> tuple[None, Limited]:
        return None, Limited(record["amount"], state.limit)

    def unlimited(key: str, record: dict, state: Unlimited) -> tuple[None, Unlimited]:
        return None, state

    def plain(key: str, record: dict, state: Plain) -> tuple[None, Plain]:
        return None, Plain(record["amount"])

    send(total(url, function=plain, default=Plain), ("ada", 3), ("bob", 4))
    send(total(url, function=limited, default=Limited), ("ada", 5))
    options = {
        "default": Unlimited,
        "version": 2,
        "upgrade": lambda state, _: Unlimited(state["amount"], state["limit"]),
    }
    send(total(url, function=unlimited, **options), ("eve", 1))
    assert dict(StoredJob("orders", state=url).scan("total", type=Unlimited)) == {
        "ada": Unlimited(5, 10),
        "bob": Unlimited(4, 10),
        "eve": Unlimited(0, 1000),
    }


@pytest.mark.parametrize("given", ["state", "default"])
@pytest.mark.parametrize("name", ["total", "renamed"])
def test_a_new_field_default_applies_to_new_keys_only(url, name, given):
    aliases = {} if name == "total" else {"aliases": ["total"]}

    def declared(kind: type) -> dict:
        return {"default": kind} if given == "default" else {"default": None, "state": kind}

    def keep(key, record, state):
        return None, state

    send(total(url, function=keep, **declared(Plain)), ("ada", 3), ("bob", 4))
    send(total(url, function=keep, **declared(Limited)), ("ada", 5))
    job = total(url, name, function=keep, **declared(Unlimited), **aliases)
    with MemoryRun(job) as run:
        moved = [f"step {name!r}: it continues with the state of 'total'"] if aliases else []
        assert run.run.notices == [
            *moved,
            f"step {name!r}: stored states that lack 'limit' (10) get the default of before, and new keys begin with today's",
        ]
        assert run.run.head.kind == "upgrade"
        run.batch({"in": [{"user": "eve", "amount": 1}]})
    assert {key: state["limit"] for key, state in StoredJob("orders", state=url).scan(name)} == {
        "ada": 10,
        "bob": 10,
        "eve": 1000,
    }
    with MemoryRun(job) as run:
        assert (run.run.notices, run.run.head.kind) == ([], "claim")


def test_a_default_set_in_another_order_is_unchanged():
    one, other, less = (
        describe(msgspec.defstruct("State", [("field", frozenset[str], frozenset(default))]))
        for default in (["a", "b", "c"], ["c", "b", "a"], ["a"])
    )
    assert one == other
    assert change(one, less).convert is not None
    # A field that had no default stands for nothing.
    required = describe(msgspec.defstruct("State", [("field", frozenset[str])]))
    assert change(required, one).convert is None


def test_newer_state_and_missing_upgrades_are_refused_before_the_claim(url):
    send(total(url, version=2), ("ada", 1))
    before = StoredJob("orders", state=url).show().sequence
    with pytest.raises(StateError, match=r"'total'.*version 2.*knows version 1"):
        send(total(url), ("ada", 1))
    with pytest.raises(StateError, match=r"'total'.*version 2.*has version 3.*upgrade="):
        send(total(url, version=3), ("ada", 1))
    assert StoredJob("orders", state=url).show().sequence == before


def test_an_upgrade_that_fails_names_versions_and_key_and_changes_nothing(url):
    send(total(url), ("ada", 1))
    with pytest.raises(StateError, match=r"from version 1 to 2 failed on the state of key 'ada': ZeroDivisionError"):
        send(total(url, version=2, upgrade=lambda state, version: state / 0), ("ada", 1))
    send(total(url), ("ada", 1))
    assert StoredJob("orders", state=url).get("total", "ada").value == 2


def test_an_alias_keeps_the_state_of_a_renamed_operator(url):
    send(total(url), ("ada", 1), ("bob", 2))
    with pytest.raises(StateError, match="names the step 'total' with 2 keys, which the program lacks"):
        send(total(url, "sum"), ("ada", 1))
    job = total(url, "sum", aliases=["total"])
    send(job, ("ada", 10))
    send(job, ("ada", 100))
    stored = StoredJob("orders", state=url)
    assert dict(stored.scan("sum")) == {"ada": 111, "bob": 2}
    assert list(stored.show().operators) == ["sum"]
    assert [found.kind for found in stored.list()].count("upgrade") == 1


def test_a_new_name_and_a_new_version_at_once(url):
    send(total(url), ("ada", 1))
    send(
        total(url, "sum", function=add, default=Total, aliases=["total"], version=2, upgrade=lambda n, _: Total(n)),
        ("ada", 1),
    )
    assert StoredJob("orders", state=url).get("sum", "ada", type=Total).value == Total(2, 1)


def test_an_alias_for_two_is_refused(url):
    send(total(url), ("ada", 1))
    job = total(url, "sum", aliases=["total"])
    job.alias("sum", "total")
    with pytest.raises(StateError, match="several of its former names"):
        send(job, ("ada", 1))


def test_state_continues_after_an_upgrade_from_the_store_alone(url):
    """The delta of the upgrade is a delta as any other: snapshots and restores include it."""
    send(total(url), ("ada", 1))
    job = total(url, version=2, upgrade=lambda n, _: n * 10)
    send(job, ("ada", 1))
    stored = StoredJob("orders", state=url)
    stored.restore(2, keep_output=True)
    send(job, ("ada", 5))
    assert StoredJob("orders", state=url).get("total", "ada").value == 15


def counting(url: str, *names: str) -> Job:
    job = Job("counts", state=url, n_shards=4, snapshot_every=2)
    stream = job.source("in", iterable([]), type=dict).key_by("by", lambda record: record["user"])
    for name in names:
        stream.stateful_map(name, lambda key, record, n: (n, n + 1), default=0).sink(f"out-{name}", discard())
    return job


def test_the_number_of_dropped_keys_is_shown_before_and_after(url):
    send(total(url), *((f"u{n}", n) for n in range(1, 31)))
    send(total(url), ("u1", 5))
    with pytest.raises(
        StateError, match=r"names the step 'total' with 30 keys, which the program lacks \(it has 'sum'\)"
    ):
        send(total(url, "sum"), ("ada", 1))
    with MemoryRun(total(url, "sum"), allow_dropped_state=["total"]) as run:
        assert run.run.notices == ["step 'total': its state is removed, 30 keys"]
    reader = StateReader(open_store(url), StoredJob("orders", state=url).show(2))
    assert reader.count("total", exactly=10) == (30, False)


def test_an_alias_of_an_unknown_step_is_refused_at_the_graph_check(url):
    job = total(url)
    job.alias("totl", "sum")
    with pytest.raises(
        GraphError, match=r"job\.alias\('totl', 'sum'\): .*no step or source 'totl'.*did you mean 'total'"
    ):
        job.plan()
    job = total(url, "sum")
    job.alias("total", "sum")
    with pytest.raises(GraphError, match=r"the other way round\?.*job\.alias\('sum', 'total'\)"):
        job.plan()


def test_an_alias_without_state_is_reported_at_the_start(url):
    send(counting(url, "a"), ("ada", 1))
    job = counting(url, "a", "b")
    job.alias("b", "c")
    with MemoryRun(job) as run:
        assert run.run.notices == ["job.alias('b', 'c') names nothing that is stored: the step begins without state"]


@pytest.mark.parametrize("given", [True, "total"])
def test_state_is_dropped_by_a_list_of_names_only(url, given):
    with pytest.raises(ConfigError, match=r"allow_dropped_state is a list of names"):
        total(url).run(options=RunOptions(allow_dropped_state=given))


@pytest.mark.parametrize("option", ["allow_dropped_state", "allow_dropped_source", "drop_unpublished"])
def test_in_memory_too_names_are_a_list(url, option):
    with pytest.raises(ConfigError, match=rf"{option} is a list of names, such as \[\"last\"\], not 'total'"):
        MemoryRun(total(url), **{option: "total"})


def reading(url: str, *names: str) -> Job:
    job = Job("orders", state=url, n_shards=4)
    for name in names:
        job.source(name, iterable([]), type=dict).sink(f"out-of-{name}", discard())
    return job


def test_in_memory_too_a_source_goes_by_name_only(url):
    with MemoryRun(reading(url, "a", "b")) as run:
        run.batch({"a": [{"n": 1}]})
    with pytest.raises(
        StateError, match=r"has read the source 'b', which the program lacks \(it has 'a'\).*--allow-dropped-source b "
    ):
        MemoryRun(reading(url, "a"))
    with pytest.raises(StateError, match=r"--allow-dropped-source a: the program has that source"):
        MemoryRun(reading(url, "a"), allow_dropped_source=["a", "b"])
    with MemoryRun(reading(url, "a"), allow_dropped_source=["b"]) as run:
        assert run.run.notices == ["source 'b': its offsets are deleted"]
        run.batch({"a": [{"n": 2}]})
    with MemoryRun(reading(url, "a")) as run:
        assert run.run.notices == []


def test_in_memory_too_a_source_may_have_another_name_and_others_may_come(url):
    with MemoryRun(reading(url, "a")) as run:
        run.batch({"a": [{"n": 1}]})
    with pytest.raises(StateError, match=r"job\.alias\('b', 'a'\)"):
        MemoryRun(reading(url, "b"))
    job = reading(url, "b", "c")
    job.alias("b", "a")
    with MemoryRun(job) as run:
        run.batch({"b": [{"n": 2}]})
    with MemoryRun(reading(url, "c", "b")) as run:
        assert run.run.notices == []


def test_dropped_state_disappears_from_manifest_and_files(url):
    records = {"in": [{"user": f"u{number}"} for number in range(50)]}
    with MemoryRun(counting(url, "a", "b")) as run:
        run.batch(records)
    with pytest.raises(StateError, match="names the step 'b'"):
        MemoryRun(counting(url, "a"))
    with MemoryRun(counting(url, "a"), allow_dropped_state=["b"]) as run:
        run.batch(records)
    with MemoryRun(counting(url, "a")) as run:
        assert list(run.run.head.operators) == ["a"]
        assert set(states(run.run.store, run.run.head)) == {"a"}
    with MemoryRun(counting(url, "a", "b")) as run:
        run.batch(records)
        kept = states(run.run.store, run.run.head)
    assert kept["b"]["u7"] == b"\x01", "the step begins anew"
    assert kept["a"]["u7"] == b"\x03"
