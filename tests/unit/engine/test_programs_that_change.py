"""Added and removed aggregates, windows of another length, removed fields: the state follows, or is not lost."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel import Job, StoredJob, count, max_, mean, min_, session, sum_, tumbling
from tidewheel._state.layout import StateLayout
from tidewheel.errors import StateError
from tidewheel.sinks import collect
from tidewheel.testing import MemoryRun

_names = itertools.count()
KINDS = ("aggregate", "tumbling", "session")


class Changing:
    """A job whose aggregates change from run to run."""

    def __init__(self, kind: str) -> None:
        self.kind, self.state, self.out = kind, f"memory:changing-{next(_names)}", collect()
        self.notices: list[str] = []

    def job(self, aggregates) -> Job:
        job = Job("changing", state=self.state, n_shards=4)
        stream = job.source("in", lambda spark: None, type=dict)
        if self.kind == "aggregate":
            folded = stream.key_by("by", "k").aggregate("fold", **aggregates)
        else:
            on_time = stream.assign_timestamps("at", "at", unit="ns").limit_out_of_orderness("bound", "0 s")
            windows = tumbling("1 s") if self.kind == "tumbling" else session("1 s")
            folded = on_time.key_by("by", "k").window("fold", windows, **aggregates)
        folded.sink("out", self.out)
        return job

    def run(self, aggregates, *values, flush=False):
        """Run a batch of values of one key; return the newest result."""
        with MemoryRun(self.job(aggregates), parallelism=2, partitions=2) as run:
            self.notices = run.run.notices
            run.batch({"in": [{"k": "a", "at": 5, "x": value, "y": 1} for value in values]})
            if flush:
                run.flush()
        return {name: self.out.records[-1][name] for name in aggregates} if self.out.records else None


@pytest.mark.parametrize("kind", KINDS)
def test_an_added_aggregate_starts_empty(kind):
    changing = Changing(kind)
    changing.run({"total": sum_("x")}, 5, 7)
    wider = {"low": min_("x"), "total": sum_("x"), "n": count(), "mean": mean("y"), "values": count("x")}
    found = changing.run(wider, 6, 8, flush=True)
    # The count of x was kept for the sum: it is whole. The others have seen two messages.
    assert found == {"low": 6, "total": 26, "n": 2, "mean": 1.0, "values": 4}
    assert changing.notices == ["step 'fold': low, n, mean start empty"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_added_aggregate_is_nothing_until_a_value_comes(kind):
    changing = Changing(kind)
    changing.run({"n": count("x")}, 5, 7)
    found = changing.run({"n": count("x"), "low": min_("x"), "mean": mean("x")}, None, flush=True)
    assert found == {"n": 2, "low": None, "mean": None}


@pytest.mark.parametrize("kind", KINDS)
def test_removing_an_aggregate_drops_it_and_keeps_the_others(kind):
    changing = Changing(kind)
    changing.run({"total": sum_("x"), "high": max_("x"), "n": count()}, 5, 7)
    changing.run({"n": count(), "high": max_("x")}, 6)
    assert changing.notices == ["step 'fold': the sum of 'x' is deleted"]
    # One that comes back begins anew: what it had is gone.
    found = changing.run({"n": count(), "high": max_("x"), "total": sum_("x")}, 1, flush=True)
    assert found == {"n": 4, "high": 7, "total": 1}


def test_only_removed_aggregates_that_the_program_named_are_reported():
    changing = Changing("aggregate")
    changing.run({"high": max_("x"), "n": count()}, 5, 7)
    changing.run({"n": count()}, 6)
    assert changing.notices == ["step 'fold': the max of 'x' is deleted"]


def test_another_order_and_other_names_rewrite_nothing():
    changing = Changing("aggregate")
    changing.run({"total": sum_("x"), "n": count()}, 5, 7)
    assert changing.run({"messages": count(), "sum": sum_("x")}, 1) == {"messages": 3, "sum": 13}
    assert changing.notices == []
    assert "upgrade" not in [found.kind for found in StoredJob("changing", state=changing.state).list()]


def test_an_operator_may_change_its_name_and_its_aggregates_at_once():
    changing = Changing("aggregate")
    changing.run({"total": sum_("x")}, 5)
    job = Job("changing", state=changing.state, n_shards=4)
    stream = job.source("in", lambda spark: None, type=dict).key_by("by", "k")
    job.alias("renamed", "fold")
    stream.aggregate("renamed", total=sum_("x"), n=count()).sink("out", changing.out)
    with MemoryRun(job) as run:
        run.batch({"in": [{"k": "a", "x": 2}]})
    assert changing.out.records[-1] == {"k": "a", "total": 7, "n": 1}


AGGREGATES = {"s": sum_("x"), "lo": min_("x"), "hi": max_("x"), "c": count("x"), "m": mean("x"), "n": count()}
PROGRAMS = st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=4, unique=True)
VALUES = st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=3)


@settings(max_examples=25, deadline=None)
@given(kind=st.sampled_from(KINDS), lives=st.lists(st.tuples(PROGRAMS, VALUES), min_size=2, max_size=4))
def test_each_aggregate_covers_all_messages_since_it_was_added(kind, lives):
    changing = Changing(kind)
    everything: list[list[int | None]] = []
    found = None
    for number, (names, values) in enumerate(lives):
        everything.append(values or [None])
        found = changing.run(
            {name: AGGREGATES[name] for name in names}, *everything[-1], flush=number == len(lives) - 1
        )
    for name in lives[-1][0]:
        possible = [_folded(name, list(itertools.chain(*everything[since:]))) for since in range(len(lives))]
        assert found[name] in possible, (name, found, possible)


def _folded(name, values):
    present = [value for value in values if value is not None]
    if name in ("n", "c"):
        return len(values if name == "n" else present)
    folds = {"s": sum, "lo": min, "hi": max, "m": lambda each: sum(each) / len(each)}
    return folds[name](present) if present else None


def test_a_changed_window_is_refused_with_a_way_and_the_way_leads_there():
    state, out = f"memory:changing-{next(_names)}", collect()

    def job(build) -> Job:
        made = Job("changing", state=state, n_shards=4)
        timed = made.source("in", lambda spark: None, type=dict).assign_timestamps("at", "at", unit="ns")
        build(timed.limit_out_of_orderness("bound", "0 s"))
        return made

    def tens(events):
        events.key_by("by-k", "k").window("tens", tumbling("10 ns"), n=count()).sink("out", out)

    def changed(events):
        events.key_by("by-k", "k").window("tens", tumbling("20 ns"), n=count()).sink("out", out)

    def both(events):
        before, after = events.branch("cut", lambda event: event["at"] < 40, lambda event: event["at"] >= 40)
        tens(before)
        wide = after.key_by("by-k-2", "k").window("twenties", tumbling("20 ns"), n=count())
        wide.sink("out-2", out)

    def at(*times):
        return {"in": [{"k": "a", "at": time} for time in times]}

    with MemoryRun(job(tens)) as run:
        run.batch(at(5, 15, 25))
    with pytest.raises(StateError, match=r"windows of 10 ns.*windows of 20 ns") as refused:
        MemoryRun(job(changed))
    said = str(refused.value)
    assert "before.key_by('by-k', …)" in said
    assert "after.key_by('by-k-2', …)" in said
    assert 'events.branch("cut", lambda event: event["at"] < cut, lambda event: event["at"] >= cut)' in said
    assert 'and event["at"] the time of a record' in said
    assert "window('tens', …)        # as it was" in said
    assert "window('tens-2', …)    # as it is now" in said
    assert "`tidewheel state keys changing tens` prints" in said

    def shared(events):
        keyed = events.key_by("by-k", "k")
        keyed.window("tens", tumbling("20 ns"), n=count()).sink("out", out)
        keyed.aggregate("all", n=count()).sink("out-3", out)

    with pytest.raises(StateError, match=r"before\.key_by\('by-k-old', …\)\.window\('tens', …\)"):
        MemoryRun(job(shared))
    with MemoryRun(job(both)) as run:
        run.batch(at(26, 38, 41))
        run.batch(at(59, 85))
        run.finish()
    found = [(row["start"], row["end"], row["n"]) for row in out.records]
    assert sorted(found) == [(0, 10, 1), (10, 20, 1), (20, 30, 2), (30, 40, 1), (40, 60, 2)]


def test_a_changed_window_of_a_function_is_refused_too():
    state, out = f"memory:changing-{next(_names)}", collect()

    def job(length: str) -> Job:
        made = Job("changing", state=state, n_shards=4)
        timed = made.source("in", lambda spark: None, type=dict).assign_timestamps("at", "at", unit="ns")
        keyed = timed.limit_out_of_orderness("bound", "0 s").key_by("by", "k")
        keyed.window("tens", tumbling(length), lambda n, _: n + 1, default=0).sink("out", out)
        return made

    with MemoryRun(job("10 ns")) as run:
        run.batch({"in": [{"k": "a", "at": 5}]})
    with pytest.raises(StateError, match=r"windows of 10 ns.*windows of 30 ns"):
        MemoryRun(job("30 ns"))
    with MemoryRun(job("10 ns")) as run:
        run.batch({"in": [{"k": "a", "at": 7}, {"k": "a", "at": 12}]})
        run.finish()
    assert [row["value"] for row in out.records] == [2]


def timed(job: Job):
    stream = job.source("in", lambda spark: None, type=dict).assign_timestamps("at", "at", unit="ns")
    return stream.limit_out_of_orderness("bound", "0 s")


def at(*times, side="left"):
    return [{"k": "a", "at": time, "side": side} for time in times]


def joined_by(name: str, windows, stream, suffix: str = ""):
    sides = stream.branch(
        f"sides{suffix}", lambda event: event["side"] == "left", lambda event: event["side"] == "right"
    )
    left, right = (side.key_by(f"by-{number}{suffix}", "k") for number, side in enumerate(sides))
    return left.window_join(name, right, windows, how="full", function=lambda a, b: [a and a["at"], b and b["at"]])


def test_a_changed_window_of_a_join_is_refused_with_a_way_that_works():
    state, out = f"memory:changing-{next(_names)}", collect()

    def job(build) -> Job:
        made = Job("changing", state=state, n_shards=4)
        build(timed(made))
        return made

    def of(length):
        return lambda events: joined_by("pairs", tumbling(length), events).sink("out", out)

    def both(events):
        before, after = events.branch("cut", lambda event: event["at"] < 60, lambda event: event["at"] >= 60)
        old = joined_by("pairs", tumbling("10 ns"), before)
        old.union("both", joined_by("pairs-2", tumbling("30 ns"), after, "-2")).sink("out", out)

    with MemoryRun(job(of("10 ns"))) as run:
        run.batch({"in": at(31)})
    with pytest.raises(StateError, match=r"both sides of windows of 10 ns.*both sides of windows of 30 ns") as refused:
        MemoryRun(job(of("30 ns")))
    assert "old = left_before.key_by('by-0', …).window_join('pairs', right_before.key_by('by-1', …)" in str(
        refused.value
    )
    assert "new = left_after.key_by('by-0-2', …).window_join('pairs-2', right_after.key_by('by-1-2', …)" in str(
        refused.value
    )
    assert "`tidewheel state keys changing pairs` prints" in str(refused.value)
    with MemoryRun(job(both)) as run:
        run.batch({"in": [*at(38, 55, 62, side="right"), *at(85)]})
        run.finish()
        run.flush()
    assert sorted(map(str, (row["value"] for row in out.records))) == ["[31, 38]", "[85, 62]", "[None, 55]"]


def test_sessions_that_become_windows_of_one_length_are_refused():
    state = f"memory:changing-{next(_names)}"

    def job(windows) -> Job:
        made = Job("changing", state=state, n_shards=4)
        keyed = timed(made).key_by("by", "k")
        keyed.window("w", windows, lambda n, _: n + 1, default=0, merge=int.__add__).sink("out", collect())
        return made

    with MemoryRun(job(session("10 ns"))) as run:
        run.batch({"in": at(30)})
    with pytest.raises(StateError, match=r"kept folded sessions for each key, and now keeps folded windows of 10 ns"):
        MemoryRun(job(tumbling("10 ns")))
    MemoryRun(job(session("20 ns"))).close()


def counted(windows):
    return lambda events: events.key_by("by", "k").window(
        "w", windows, lambda n, _: n + 1, default=0, merge=int.__add__
    )


@pytest.mark.parametrize(
    ("build", "other", "layout"),
    [
        (counted(tumbling("10 ns")), counted(tumbling("30 ns")), "window"),
        (counted(session("10 ns")), None, "window"),
        (
            lambda events: joined_by("w", tumbling("10 ns"), events),
            lambda events: joined_by("w", tumbling("30 ns"), events),
            "window join of tagged values",
        ),
    ],
    ids=["windows", "sessions", "join"],
)
def test_state_without_a_recorded_window_continues_and_records_it(build, other, layout, monkeypatch):
    state, out = f"memory:changing-{next(_names)}", collect()

    def job(build) -> Job:
        made = Job("changing", state=state, n_shards=4)
        build(timed(made)).sink("out", out)
        return made

    earlier = job(build)
    operator = type(next(node.operator for node in earlier.graph.nodes if node.name == "w"))
    with monkeypatch.context() as version:
        version.setattr(operator, "state_layout", StateLayout(layout))
        with MemoryRun(earlier) as run:
            run.batch({"in": at(31)})
    with MemoryRun(job(build)) as run:
        run.batch({"in": at(33)})
    kinds = [found.kind for found in StoredJob("changing", state=state).list()]
    assert "upgrade" not in kinds, "nothing is rewritten"
    if other is not None:
        with pytest.raises(StateError, match=r"windows of 10 ns.*windows of 30 ns"):
            MemoryRun(job(other))
    with MemoryRun(job(build)) as run:
        run.batch({"in": at(70)})
        run.finish()
    assert [row["value"] for row in out.records] in ([2], [[31, None], [33, None]])


@pytest.mark.parametrize(
    ("horizons", "expected"),
    [((30, 10), [100, 112, 85]), ((10, 30), [100, 65, 131]), ((10, 30, 10), [100, 131, 120, 85])],
)
def test_the_new_horizon_applies_to_duplicates(horizons, expected):
    """Each program but the first gets messages of the same id, 100 is the first of them all."""
    state, out = f"memory:changing-{next(_names)}", collect()
    times = {(30, 10): [[100, 95, 112, 85]], (10, 30): [[120, 75, 65, 131]], (10, 30, 10): [[120, 131], [120, 95, 85]]}

    def job(horizon: int) -> Job:
        made = Job("changing", state=state, n_shards=4)
        stream = made.source("in", lambda spark: None, type=dict).assign_timestamps("at", "at", unit="ns")
        keyed = stream.limit_out_of_orderness("bound", "100 ns").key_by("by", "k")
        keyed.deduplicate("once", f"{horizon} ns").sink("out", out)
        return made

    with MemoryRun(job(horizons[0])) as run:
        run.batch({"in": at(100)})
    for horizon, each in zip(horizons[1:], times[horizons], strict=True):
        with MemoryRun(job(horizon)) as run:
            run.batch({"in": at(*each)})
    assert [row["at"] for row in out.records] == expected
    with MemoryRun(job(horizons[-1])) as run:
        run.batch({"in": [{"k": "later", "at": 400}]})
        run.batch({"in": [{"k": "later", "at": 401}]})
    assert list(StoredJob("changing", state=state).keys("once")) == ["later"]


def test_the_clock_continues_when_an_input_has_no_partitions_any_more():
    state, out = f"memory:changing-{next(_names)}", collect()

    def job(**options) -> Job:
        made = Job("changing", state=state, n_shards=4)
        stream = made.source("in", lambda spark: None, type=dict).assign_timestamps("at", "at", unit="ns")
        keyed = stream.limit_out_of_orderness("bound", "0 s", **options).key_by("by", "k")
        keyed.window("w", tumbling("10 ns"), n=count()).sink("out", out)
        return made

    with MemoryRun(job(partition="side")) as run:
        run.batch({"in": [*at(5), *at(7, side="right")]})
    with MemoryRun(job()) as run:
        run.batch({"in": at(25)})
        run.finish()
    assert [row["n"] for row in out.records] == [2]


def test_the_proposed_cut_is_the_first_after_all_that_was_read():
    state = f"memory:changing-{next(_names)}"

    def job(length: str) -> Job:
        made = Job("changing", state=state, n_shards=4)
        timed = made.source("in", lambda spark: None, type=dict).assign_timestamps("at", "at")
        on_time = timed.limit_out_of_orderness("bound", "10 minutes")
        on_time.key_by("by", "k").window("sold", tumbling(length), n=count()).sink("out", collect())
        return made

    for minute, proposed in ((50, "T12:00:00+00:00"), (50 + 70, "T15:00:00+00:00")):
        with MemoryRun(job("1 hour")) as run:
            run.batch({"in": [{"k": "a", "at": datetime(2026, 3, 1, 10, tzinfo=UTC) + timedelta(minutes=minute)}]})
        with pytest.raises(StateError, match=re.escape(f"2026-03-01{proposed}")):
            MemoryRun(job("3 hours"))
