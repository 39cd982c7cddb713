"""n_shards of a stopped job is changed offline: afterwards all state is there, or nothing has changed."""

from __future__ import annotations

import secrets

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from support.internals import faults, open_store, states
from tidewheel import Job, Message, Output, StatefulLogic, StoredJob, Timer, sum_
from tidewheel._checkpoint.job_place import JobPlace
from tidewheel._cli.reshard import reshard as reshard_command
from tidewheel._core.keys import shard_of_stored
from tidewheel._engine.reset import holdings
from tidewheel._engine.reshard import Tally, check_equal, reshard
from tidewheel._engine.stopped_job import opener
from tidewheel._state.shard_contents import shard_items
from tidewheel._testing.clock import NOON
from tidewheel.checkpoints import StreamCheckpoints
from tidewheel.errors import ConfigError, HeldError, StateError
from tidewheel.sinks import collect
from tidewheel.sources import iterable
from tidewheel.testing import Clock, MemoryRun


@pytest.fixture(autouse=True)
def disarmed():
    yield
    faults.arm("")


def job(state: str, n_shards: int) -> Job:
    made = Job("job", state=state, n_shards=n_shards, snapshot_every=2)
    by = made.source("in", iterable([]), type=dict).key_by("by", "user")
    by.stateful_map("count", lambda user, record, n: (n + 1, n + 1), default=0).sink("out", collect())
    by.aggregate("total", total=sum_("n")).sink("totals", collect())
    return made


def records(n: int) -> list[dict]:
    return [{"user": f"user-{number}", "n": n} for number in range(300)]


@pytest.fixture
def state() -> str:
    url = f"memory:reshard-{secrets.token_hex(4)}"
    with MemoryRun(job(url, 8), parallelism=3) as run:
        for n in range(4):
            run.batch({"in": records(n)})
    return url


def newest(state: str):
    return StreamCheckpoints(open_store(state), "job").latest()


@pytest.mark.parametrize("n_shards", [1, 2, 4, 16, 64])
def test_all_state_is_in_its_new_shards_and_the_job_continues(state, n_shards):
    before = states(open_store(state), newest(state))
    done = reshard(JobPlace("job", state), n_shards)
    head = newest(state)
    assert (done.before, done.after, head.n_shards, head.kind) == (8, n_shards, n_shards, "reshard")
    assert {table: tally.entries for table, tally in done.tables.items()} == {"count": 300, "total": 300}
    assert states(open_store(state), head) == before
    for shard, parts in head.shards.items():
        for _, key, _ in shard_items(parts, shard, opener(open_store(state), "job")):
            assert shard_of_stored(key, n_shards) == shard
    with MemoryRun(job(state, n_shards), parallelism=5) as run:
        run.batch({"in": records(9)})
    counts = states(open_store(state), newest(state))["count"]
    assert {msgspec.msgpack.decode(raw) for raw in counts.values()} == {5}
    assert newest(state).parallelism == min(5, n_shards)
    assert StoredJob("job", state=state).verify().problems == ()


def test_the_program_must_say_the_new_number(state):
    reshard(JobPlace("job", state), 16)
    with pytest.raises(StateError, match="n_shards=8, and its state was made with 16"):
        MemoryRun(job(state, 8))


@pytest.mark.parametrize("point", ["reshard.written", "reshard.checked", "reshard.switched"])
def test_killed_at_any_point_it_is_the_old_state_or_the_new(state, point):
    before = states(open_store(state), newest(state))
    faults.arm(f"{point}=raise")
    with pytest.raises(faults.InjectedFault):
        reshard(JobPlace("job", state), 32)
    faults.arm("")
    head = newest(state)
    assert head.n_shards == (32 if point == "reshard.switched" else 8)
    assert states(open_store(state), head) == before
    with MemoryRun(job(state, head.n_shards)) as run:
        run.batch({"in": records(1)})


def test_a_checkpoint_from_before_can_be_restored(state):
    old = newest(state).sequence
    reshard(JobPlace("job", state), 16)
    StoredJob("job", state=state).restore(old, keep_output=True)
    with MemoryRun(job(state, 8)) as run:
        run.batch({"in": records(1)})


def test_impossible_reshards_are_refused(state):
    with pytest.raises(ConfigError, match="has 8 shards already"):
        reshard(JobPlace("job", state), 8)
    with pytest.raises(ConfigError, match="power of two"):
        reshard(JobPlace("job", state), 12)
    with MemoryRun(job(state, 8)), pytest.raises(HeldError):
        reshard(JobPlace("job", state), 16)


def test_different_state_is_not_switched_to():
    check_equal("job", {"a": Tally().plus(b"k", b"v")}, {"a": Tally().plus(b"k", b"v")})
    with pytest.raises(StateError, match="would change 'a'"):
        check_equal("job", {"a": Tally().plus(b"k", b"v")}, {"a": Tally().plus(b"k", b"w")})
    with pytest.raises(StateError, match=r"it has 1 entries .* and 0 with"):
        check_equal("job", {"a": Tally().plus(b"k", b"v")}, {})


class Reminding(StatefulLogic[int]):
    """Sets a timer for each message, and tells when it is due."""

    def on_data(self, message: Message, state: int, output: Output) -> int:
        output.set_timer(NOON + 1_000, clock="wall")
        return state + 1

    def on_timer(self, timer: Timer, state: int, output: Output) -> None:
        output.emit(state)


def reminding(name: str, state: str, n_shards: int, out) -> Job:
    made = Job(name, state=state, n_shards=n_shards)
    by = made.source("in", iterable([]), type=dict).key_by("by", "user")
    by.stateful_op("remind", Reminding(), default=0).sink("out", out)
    return made


def test_timers_go_where_their_keys_go():
    state, out, clock = f"memory:reshard-{secrets.token_hex(4)}", collect(), Clock(NOON)
    with MemoryRun(reminding("job", state, 8, out), clock=clock) as run:
        run.batch({"in": records(1)})
    reshard(JobPlace("job", state), 4)
    clock.advance(1)
    with MemoryRun(reminding("job", state, 4, out), clock=clock, parallelism=2) as run:
        run.batch({"in": []})
    assert sorted(record["user"] for record in out.records) == sorted(f"user-{number}" for number in range(300))


def test_from_the_shell(state):
    app = typer.Typer()
    app.command()(reshard_command)
    result = CliRunner().invoke(app, ["job", "4", "--state", state])
    assert "job: 8 shards became 4 with commit" in result.output
    assert "600 entries of 2 tables" in result.output
    assert "Run it with n_shards=4" in result.output


def test_a_job_with_an_interrupted_move_of_an_earlier_version_is_refused(state):
    """Earlier versions moved keys between jobs. To go on without finishing such a move would lose the keys."""
    open_store(state).create("job/transfers/ab12.delta", b"")
    refusal = "job/transfers/ab12.delta at .* belongs to an interrupted move .* delete the file"
    with pytest.raises(StateError, match=refusal):
        reshard(JobPlace("job", state), 4)
    with pytest.raises(StateError, match=refusal):
        MemoryRun(job(state, 8)).__enter__()
    with pytest.raises(StateError, match=refusal):
        holdings(open_store(state), "job")
