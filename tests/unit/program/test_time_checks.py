"""Checks of a program's event time before it runs: whether its clock moves, and which messages it waits for."""

from __future__ import annotations

import itertools

import pytest
from typer.testing import CliRunner

from support.internals import app
from tidewheel import Job, RunOptions, StatefulLogic, count, session, sum_, tumbling
from tidewheel._operators.time_checks import check_clock, clock_warnings, missing_clock
from tidewheel._program.running import run_on_spark
from tidewheel.errors import GraphError
from tidewheel.sinks import discard
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun, run_in_memory

_places = itertools.count()
ITEMS = [{"user": "ada", "n": 1, "at": 5}, {"user": "ada", "n": 2, "at": 25}]


def timed(job: Job, name: str, *, bound: bool):
    stream = job.source(name, iterable(ITEMS)).assign_timestamps(f"{name}-at", "at", unit="ns")
    return stream.limit_out_of_orderness(f"{name}-bound", "1 s") if bound else stream


def program(step, *, left: bool, right: bool = False) -> Job:
    job = Job("checked", state=f"memory:time-checks-{next(_places)}")
    keyed = [
        timed(job, name, bound=bound).key_by(f"by-{name}", "user") for name, bound in [("in", left), ("right", right)]
    ]
    keyed[1].sink("other", discard())
    step(*keyed).sink("out", discard())
    return job


class OnEpoch(StatefulLogic[int]):
    def on_data(self, message, state, output):
        return state

    def on_epoch(self, epoch, states, output):
        pass


class OnTimer(StatefulLogic[int]):
    clock = "wall"

    def on_data(self, message, state, output):
        output.set_timer(output.now, clock=self.clock)
        return state

    def on_timer(self, timer, state, output):
        return None


STUCK = {
    "window": lambda left, right: left.window("op", tumbling("10 ns"), n=sum_("n")),
    "session": lambda left, right: left.window("op", session("10 ns"), n=count()),
    "fold": lambda left, right: left.window("op", tumbling("10 ns"), lambda n, row: n + 1, default=0),
    "window-join": lambda left, right: left.window_join("op", right, tumbling("10 ns")),
    "as-of-join": lambda left, right: left.as_of_join("op", right),
    "outer-join": lambda left, right: left.interval_join("op", right, how="left"),
    "ttl-map": lambda left, right: left.ttl_map("op", lambda message, entries: None),
    "ttl": lambda left, right: left.stateful_map("op", lambda key, row, n: (n, n), default=0, ttl="1 s"),
    "op-with-ttl": lambda left, right: left.stateful_op("op", lambda message, n, out: n, default=0, ttl="1 s"),
}
DOUBTED = {
    "inner-join": lambda left, right: left.interval_join("op", right),
    "deduplicate": lambda left, right: left.deduplicate("op", "1 s"),
    "on-epoch": lambda left, right: left.stateful_op("op", OnEpoch(), default=0),
}
FREE = {
    "aggregate": lambda left, right: left.aggregate("op", n=sum_("n")),
    "wall-ttl": lambda left, right: left.stateful_map(
        "op", lambda key, row, n: (n, n), default=0, ttl="1 s", ttl_clock="wall"
    ),
    "wall-timers": lambda left, right: left.stateful_op("op", OnTimer(), default=0),
}


@pytest.mark.parametrize("step", STUCK.values(), ids=STUCK)
def test_a_step_that_needs_a_clock_is_refused_with_the_line_to_add(step):
    job = program(step, left=False)
    text = (
        r"step 'op' \(.*\): no step of the program advances the clock, so no.* before the end of a bounded run .*"
        r"Add limit_out_of_orderness after 'in-at'.*: timed = timed\.limit_out_of_orderness\(\"bound\", \"1 minute\"\)"
    )
    for begin in (
        lambda: job.run(until="caught-up"),
        lambda: job.start(),
        lambda: run_in_memory(job, {"in": ITEMS}, flush=False),
    ):
        with pytest.raises(GraphError, match=text):
            begin()
    with pytest.warns(UserWarning, match=f"{text}.*other runs refuse"):
        run_in_memory(job)
    # The end of a bounded run is after all time; a test may give the epochs itself.
    run_on_spark(job, RunOptions(until="end"))
    with MemoryRun(job) as run:
        run.batch({"in": ITEMS}, epoch=30)
    assert missing_clock(program(step, left=True).graph) is None
    check_clock(program(step, left=True, right=True).graph)


@pytest.mark.parametrize("step", DOUBTED.values(), ids=DOUBTED)
def test_a_step_that_only_lacks_a_clock_is_reported(step):
    job = program(step, left=False)
    check_clock(job.graph)
    (warning,) = clock_warnings(job.graph)
    assert warning.startswith("step 'op'")
    assert "no step of the program advances the clock, so " in warning
    assert list(clock_warnings(program(step, left=True, right=True).graph)) == []


@pytest.mark.parametrize("step", FREE.values(), ids=FREE)
def test_a_step_that_needs_no_clock_is_not_reported(step):
    job = program(step, left=False)
    check_clock(job.graph)
    assert list(clock_warnings(job.graph)) == []


@pytest.mark.parametrize(
    "step",
    [
        STUCK["outer-join"],
        STUCK["window-join"],
        lambda left, right: left.union("all", right).window("op", tumbling("10 ns"), n=count()),
    ],
    ids=["interval", "window", "union"],
)
def test_a_side_that_no_clock_waits_for_is_reported(step):
    (warning,) = clock_warnings(program(step, left=True, right=False).graph)
    assert "step 'op'" in warning
    assert "the messages of source 'right' pass no event_time, limit_out_of_orderness or generate_epochs" in warning
    assert "after 'right-at'" in warning
    assert list(clock_warnings(program(step, left=True, right=True).graph)) == []


def test_a_stream_that_feeds_a_clock_in_another_branch_is_waited_for():
    job = Job("beside", state=f"memory:time-checks-{next(_places)}")
    stream = timed(job, "in", bound=False)
    stream.filter("some", lambda row: row.n).limit_out_of_orderness("bound", "1 s").sink("side", discard())
    stream.key_by("by", "user").window("op", tumbling("10 ns"), n=count()).sink("out", discard())
    assert list(clock_warnings(job.graph)) == []
    # A clock that only the results of the window would move never comes to it.
    alone = Job("behind", state=f"memory:time-checks-{next(_places)}")
    windows = timed(alone, "in", bound=False).key_by("by", "user").window("op", tumbling("10 ns"), n=count())
    windows.limit_out_of_orderness("bound", "1 s").sink("out", discard())
    assert len(list(clock_warnings(alone.graph))) == 1
    # Times that are given anew are not those that the clock takes in.
    anew = stream.assign_timestamps("anew", "n", unit="ns").key_by("by-anew", "user")
    anew.window("other", tumbling("10 ns"), n=count()).sink("other-out", discard())
    (warning,) = clock_warnings(job.graph)
    assert warning.startswith("step 'other'")


def test_only_a_stream_that_no_clock_waits_for_is_reported():
    job = Job("beside", state=f"memory:time-checks-{next(_places)}")
    left, right = timed(job, "in", bound=False), timed(job, "right", bound=False)
    left.limit_out_of_orderness("bound", "1 s").sink("side", discard())
    left.union("all", right).key_by("by", "user").window("op", tumbling("10 ns"), n=count()).sink("out", discard())
    (warning,) = clock_warnings(job.graph)
    assert "the messages of source 'right' pass" in warning
    assert "after 'right-at':" in warning


def test_a_ttl_by_event_time_without_timestamps_is_refused_in_the_graph():
    keyed = Job("untimed").source("in", iterable(ITEMS)).key_by("by", "user")
    with pytest.raises(GraphError, match=r"step 'op' .*a ttl by event time needs timestamps; .* ttl_clock=\"wall\""):
        keyed.stateful_map("op", lambda key, row, n: (n, n), default=0, ttl="1 s")


def late_program(lead, *, lateness="1 s", aggregates=True) -> Job:
    job = Job("late", state="memory:time-checks")
    stream = job.source("in", iterable(ITEMS)).assign_timestamps("at", "at", unit="ns")
    timed = stream.limit_out_of_orderness("bound", "1 s")
    keyed = lead(timed, timed.late).key_by("by", "user")
    fold = {"n": count()} if aggregates else {"add": lambda n, row: n + 1, "default": 0}
    keyed.window("op", tumbling("10 ns"), **fold, allowed_lateness=lateness).sink("out", discard())
    return job


@pytest.mark.parametrize("aggregates", [True, False])
def test_an_allowed_lateness_that_no_late_message_reaches_is_refused(aggregates):
    with pytest.raises(
        GraphError,
        match=r"step 'op' \(window\): no late messages can reach it, .* in \.late of 'bound'\. .*union",
    ):
        late_program(lambda on_time, late: on_time, aggregates=aggregates).plan()
    late_program(lambda on_time, late: on_time, lateness="0 s", aggregates=aggregates).plan()
    late_program(lambda on_time, late: on_time.union("all", late), aggregates=aggregates).plan()
    late_program(lambda on_time, late: late, aggregates=aggregates).plan()
    # Another time may be behind the clock, whatever the first one was.
    late_program(lambda on_time, late: on_time.assign_timestamps("again", "n", unit="ns"), aggregates=aggregates).plan()


def test_the_corrections_of_a_window_are_late_for_the_next():
    job = Job("two", state="memory:time-checks")
    stream = job.source("in", iterable(ITEMS)).assign_timestamps("at", "at", unit="ns")
    on_time = stream.limit_out_of_orderness("bound", "1 s")
    late = on_time.late
    first = (
        on_time.union("all", late)
        .key_by("by", "user")
        .window("w", tumbling("10 ns"), n=count(), allowed_lateness="1 s")
    )
    first.window("op", tumbling("20 ns"), n=sum_("n"), allowed_lateness="1 s").sink("out", discard())
    job.plan()


def test_tidewheel_graph_reports_steps_without_a_clock(tmp_path):
    (tmp_path / "program.py").write_text(
        "from tidewheel import Job, count, sinks, sources, tumbling\n"
        "job = Job('still')\n"
        "timed = job.source('in', sources.iterable([{'user': 'ada', 'at': 5}])).assign_timestamps('at', 'at', unit='ns')\n"
        "timed.key_by('by', 'user').window('w', tumbling('10 ns'), n=count()).sink('out', sinks.discard())\n"
    )
    told = CliRunner().invoke(app, ["graph", str(tmp_path / "program.py")])
    assert told.exit_code == 0
    assert "Warning: step 'w' (window): no step of the program advances the clock" in told.stderr
