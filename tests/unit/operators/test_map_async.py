"""map_async: many slow calls at once."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidewheel
from tidewheel import Job
from tidewheel._core import event_loop
from tidewheel._operators.stateless import map_async
from tidewheel._operators.stateless.calls import CallOptions, Calls
from tidewheel.errors import GraphError, Retry, StepError
from tidewheel.sinks import collect
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun, golden, run_in_memory
from unit.operators.running import failure, run


async def doubled(n: int) -> int:
    await asyncio.sleep(0)
    return 2 * n


@given(
    st.lists(st.integers(-5, 5), max_size=40),
    st.integers(1, 8),
    st.none() | st.integers(1, 7),
    st.sampled_from([0, 1, 3, 100]),
    st.booleans(),
)
def test_it_gives_the_results_of_map_in_the_same_order(numbers, concurrency, batch, cache, plain):
    """Against the plain model: the function applied to each value; values that it cannot take are dead letters."""

    def one(n: int) -> float:
        return 12 / n

    async def one_later(n: int) -> float:
        await asyncio.sleep(0.0001 * (n % 3))
        return 12 / n

    async def many(ns: list[int]) -> list[float]:
        return [12 / n for n in ns]

    function = many if batch else one if plain else one_later
    step = {"concurrency": concurrency, "batch": batch, "cache": cache}
    ran = run(lambda s: s.map_async("divide", function, **step), numbers, numbers, dead_letter=True)
    assert ran.values() == [12 / n for n in numbers * 2 if n]
    assert len(ran.dead) == 2 * numbers.count(0)


def test_no_more_calls_are_in_flight_than_concurrency_allows():
    flying, most = 0, 0

    async def call(n: int) -> int:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(0.001)
        flying -= 1
        return n

    run(lambda s: s.map_async("call", call, concurrency=7), list(range(50)))
    assert most == 7


def test_plain_functions_run_in_as_many_threads_at_once():
    barrier = threading.Barrier(5, timeout=60)
    ran = run(
        lambda s: s.map_async("call", lambda n: (barrier.wait(), n)[1], concurrency=5, timeout=None), [0, 1, 2, 3, 4]
    )
    assert ran.values() == [0, 1, 2, 3, 4]


def test_a_transient_error_is_repeated_and_no_dead_letter():
    tried: Counter[int] = Counter()

    async def call(n: int) -> int:
        tried[n] += 1
        if tried[n] <= 2:
            raise ConnectionError("refused")
        return n

    ran = run(lambda s: s.map_async("call", call), [1, 2, 3], dead_letter=True)
    assert ran.values() == [1, 2, 3]
    assert ran.dead == []
    assert set(tried.values()) == {3}


def test_an_outage_fails_the_batch_and_names_the_step():
    async def call(n: int) -> int:
        raise ConnectionError("refused")

    with pytest.raises(Retry, match=r"'call': ConnectionError: refused.*the batch runs again"):
        run(lambda s: s.map_async("call", call, retries=1), [1, 2, 3], dead_letter=True)


def test_a_call_that_hangs_is_ended_by_the_time_limit_and_repeated():
    tried: Counter[int] = Counter()

    async def call(n: int) -> int:
        tried[n] += 1
        if n == 2 and tried[n] == 1:
            await asyncio.Event().wait()
        return n

    assert run(lambda s: s.map_async("call", call, timeout="50 ms"), [1, 2, 3]).values() == [1, 2, 3]
    assert tried == {1: 1, 2: 2, 3: 1}


def test_a_call_that_always_takes_too_long_names_the_limit():
    async def call(n: int) -> int:
        await asyncio.Event().wait()
        return n

    with pytest.raises(Retry, match=r"a call took longer than timeout= \(0.02 s\)"):
        run(lambda s: s.map_async("call", call, timeout="20 ms", retries=0), [1])


def test_errors_of_the_users_choice_are_transient():
    class Busy(Exception):
        pass

    async def call(n: int) -> int:
        raise Busy("later")

    with pytest.raises(Retry, match="Busy: later"):
        run(lambda s: s.map_async("call", call, retries=0, retry=(Busy,)), [1], dead_letter=True)


def test_any_other_error_names_step_and_record():
    text = failure(lambda s: s.map_async("invert", lambda n: 12 // n), [1, 0])
    assert "'invert'" in text
    assert "0: ZeroDivisionError" in text


def test_results_are_cached_by_the_functions_argument():
    called: list[str] = []

    async def country(city: str) -> str:
        called.append(city)
        return city.upper()

    rows = [{"id": n, "city": "ab"[n % 2]} for n in range(6)]
    ran = run(
        lambda s: s.map_async(
            "country", country, on="city", cache=10, combine=lambda row, found: {"id": row.id, "country": found}
        ),
        rows,
        rows,
        plain=False,
    )
    assert sorted(called) == ["a", "b"]
    assert ran.records == [{"id": n, "country": "AB"[n % 2]} for n in range(6)] * 2


def test_equal_values_of_different_types_have_their_own_cached_results():
    async def call(value: object) -> str:
        return str(value)

    values = [1, True, 1.0, (1, "a"), (True, "a"), 1]
    ran = run(lambda s: s.map("value", values.__getitem__).map_async("call", call, cache=10), range(6), range(6))
    assert [record["value"] for record in ran.records] == list(map(str, values)) * 2


def test_a_full_cache_drops_the_result_that_was_used_least_recently():
    called: list[int] = []

    async def call(n: int) -> int:
        called.append(n)
        return n

    run(lambda s: s.map_async("call", call, cache=2), [1], [2], [1], [3], [1], [2])
    assert called == [1, 2, 3, 2]


def test_a_result_expires_after_its_time():
    called: list[int] = []

    async def call(n: int) -> int:
        called.append(n)
        return n

    run(lambda s: s.map_async("call", call, cache=2, ttl="1 ns"), [1], [1])
    assert called == [1, 1]


def test_a_value_that_cannot_be_cached_is_an_error_with_a_way_out():
    text = failure(lambda s: s.map_async("call", doubled, cache=5), [{"n": [1]}], plain=False)
    assert "Use on= to name what identifies a look-up" in text


def test_a_wrong_number_of_results_is_an_error():
    text = failure(lambda s: s.map_async("call", lambda ns: ns[1:], batch=3), [1])
    assert "with batch=, the function must return a list with one result per value: 1, not 0 results" in text


def test_a_resource_is_opened_once_and_closed_with_the_program():
    events: list[str] = []

    async def opening() -> str:
        events.append("open")
        return "session"

    async def call(n: int, session: str) -> str:
        return f"{session} {n}"

    ran = run(
        lambda s: s.map_async("call", call, open=opening, close=lambda it: events.append(f"close {it}")), [1], [2]
    )
    assert ran.values() == ["session 1", "session 2"]
    gc.collect()
    assert events == ["open", "close session"]


def test_a_resource_that_cannot_be_opened_is_no_records_fault():
    def opening() -> None:
        raise ValueError("no such model")

    with pytest.raises(StepError, match="'call': open= failed: ValueError: no such model"):
        run(lambda s: s.map_async("call", lambda n, it: n, open=opening), [1], dead_letter=True)


def test_a_resource_can_be_closed_in_the_thread_of_the_calls():
    """A finalizer may run there, and would wait for itself."""
    events: list[str] = []
    calls = Calls(doubled, CallOptions(1, None, 0, None, 0, None), (), lambda: "session", events.append)

    async def collected() -> None:
        await calls.open()
        calls.close()
        while not events:
            await asyncio.sleep(0)

    event_loop.run(collected())
    assert events == ["session"]


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("plain", [True, False])
def test_a_base_exception_belongs_to_its_record(error, plain):
    def one(n: int) -> int:
        if n == 2:
            raise error
        return n

    async def one_later(n: int) -> int:
        return one(n)

    ran = run(lambda s: s.map_async("call", one if plain else one_later), [1, 2, 3], dead_letter=True)
    assert ran.values() == [1, 3]
    assert f"the function raised {error.__name__}" in ran.dead[0]["error"]


def test_calls_in_flight_are_stopped_when_their_batch_fails():
    begun: list[int] = []
    stopped: list[int] = []

    async def call(n: int) -> int:
        if n == 1:
            while len(begun) < 2:
                await asyncio.sleep(0)
            raise ConnectionError("refused")
        begun.append(n)
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(n)
        return n

    with pytest.raises(Retry):
        run(lambda s: s.map_async("call", call, retries=0, timeout=None), [1, 2, 3])
    assert sorted(stopped) == [2, 3]


def test_without_order_a_slow_call_holds_up_only_records_of_its_key():
    """The first call ends when all other blocks that can be passed on have been."""
    passed: list[int] = []
    away = asyncio.Event()

    async def call(n: int) -> int:
        if n == 0:
            await away.wait()
        return n

    async def set_away() -> None:
        away.set()

    def passing(n: int) -> int:
        passed.append(n)
        if len(passed) == 300:
            event_loop.run(set_away())
        return n

    def build(stream):
        keyed = stream.key_by("by", lambda n: 0 if n % 200 == 0 else n)
        return keyed.map_async("call", call, ordered=False).map(passing)

    run(build, list(range(600)))
    # Blocks are of 100 records, and those that begin at 200 and 400 have a record of the key of the first.
    assert passed[:300] == [*range(100, 200), *range(300, 400), *range(500, 600)]


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(-3, 9)), max_size=60),
    st.integers(1, 4),
    st.none() | st.integers(1, 3),
    st.booleans(),
)
def test_without_order_each_key_has_the_results_of_map_in_its_order(rows, concurrency, batch, cached):
    async def one(n: int) -> float:
        await asyncio.sleep(0.0003 * (n % 3))
        return 12 / n

    async def many(ns: list[int]) -> list[float]:
        return [await one(n) for n in ns]

    def build(stream):
        keyed = stream.key_by("by", lambda row: row.of)
        return keyed.map_async(
            "divide",
            many if batch else one,
            on="n",
            ordered=False,
            concurrency=concurrency,
            batch=batch,
            cache=9 * cached,
        )

    with patch.object(map_async, "_BLOCK", 1):
        ran = run(build, [{"of": of, "n": n} for of, n in rows], dead_letter=True, plain=False)
    model: dict[int, list[float]] = {}
    for of, n in rows:
        if n:
            model.setdefault(of, []).append(12 / n)
    assert ran.by_key() == model
    assert len(ran.dead) == sum(n == 0 for _, n in rows)


def test_the_idempotency_key_is_the_same_when_a_batch_runs_again():
    seen: list[list[str]] = [[]]
    fails = [True]

    async def call(n: int) -> int:
        seen[-1].append(tidewheel.idempotency_key())
        return n

    def breaking(n: int) -> int:
        if fails[0]:
            raise ConnectionError("away")
        return n

    job = Job("again", state="memory:idempotent", n_shards=4)
    stream = job.source("in", iterable([1, 2, 2, 3]))
    stream.map_async("call", call).map("break", breaking).sink("out", collect())
    with pytest.raises(Retry):
        run_in_memory(job)
    fails[0] = False
    seen.append([])
    run_in_memory(job)
    assert len(set(seen[0])) == 4
    assert set(seen[1]) == set(seen[0])


def test_the_idempotency_key_is_known_in_threads_and_nowhere_else():
    keys = run(lambda s: s.map_async("call", lambda n: tidewheel.idempotency_key()), [1, 1], [1]).values()
    assert len(set(keys)) == 3
    with pytest.raises(StepError, match="inside of a function of map_async"):
        tidewheel.idempotency_key()


@pytest.mark.parametrize("ordered", [True, False])
def test_a_golden_program_gives_the_same_under_crashes_and_rescales(ordered):
    async def prices(items: list[int]) -> list[int]:
        await asyncio.sleep(0)
        return [100 + item for item in items]

    job = Job("priced", n_shards=8)
    orders = job.source("orders", iterable([])).key_by("by-user", "user")
    priced = orders.map_async(
        "price",
        prices,
        on="item",
        cache=5,
        batch=4,
        ordered=ordered,
        combine=lambda order, cents: {"cents": cents, "item": order.item},
    )
    priced.stateful_map(
        "last", lambda user, order, seen: ([*seen, order["item"]], [*seen, order["item"]]), default=list
    ).sink("out", collect())
    rows = [{"user": f"u{n % 5}", "item": n} for n in range(60)]
    result = golden(job, {"orders": rows}, seed=20261118)
    assert result.states["last"] == {f"u{user}": list(range(user, 60, 5)) for user in range(5)}


def test_calls_failures_and_durations_are_counted():
    tried: Counter[int] = Counter()

    async def call(n: int) -> int:
        tried[n] += 1
        if tried[n] == 1:
            raise ConnectionError
        return n

    job = Job("counted", state="memory:counted", n_shards=4)
    job.source("in", iterable([1, 2, 2])).map_async("call", call, cache=5).sink("out", collect())
    with MemoryRun(job) as memory:
        memory.batch({"in": [{"value": 1}, {"value": 2}, {"value": 2}]})
        counts = memory.run.head.counts
    assert (counts["call/calls"], counts["call/failures"], counts["call/cached"]) == (4, 2, 1)
    assert "call/call_ms" in counts


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"concurrency": 0}, "concurrency= must be a number from 1 on, not 0"),
        ({"batch": 0}, "batch= must be a number from 1 on, not 0"),
        ({"retries": -1}, "retries= must be a number from 0 on, not -1"),
        ({"close": print}, "close= needs open="),
        ({"ttl": "1 s"}, "ttl= is the time that a result is cached, and needs cache="),
        ({"timeout": "soon"}, "'call': timeout="),
        ({"open": dict}, "is called with value and resource"),
    ],
)
def test_options_that_cannot_work_are_refused(options, text):
    stream = Job("refused").source("in", iterable([1]))
    with pytest.raises(GraphError) as caught:
        stream.map_async("call", doubled, **options)
    assert text in str(caught.value)
