"""Keys move between two stopped jobs; killed at any point, each key is in exactly one of them, whole."""

from __future__ import annotations

import contextlib
import json
import secrets

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from tidewheel import Job, StoredJob
from tidewheel._checkpoint.store import StreamCheckpoints
from tidewheel._checkpoint.transfer import JobPlace, Transfer
from tidewheel._cli.move import move as move_command
from tidewheel._core import faults
from tidewheel._engine.move import move
from tidewheel._engine.stopped_job import states
from tidewheel._state.references import FileRef
from tidewheel._storage import open_store
from tidewheel.errors import ConfigError, FencedError, HeldError, NotFound, StateError
from tidewheel.sinks import collect
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun

KEYS = 1000
MOVED = [f"user-{number}" for number in range(KEYS)]
STAYS = [f"other-{number}" for number in range(50)]
POINTS = ["move.written", "move.announced", "move.let-go", "move.taken-in", "move.file-dropped"]
LIVES = [*((point, 1) for point in POINTS), *(("start.claimed", hit) for hit in range(1, 3))]


@pytest.fixture(autouse=True)
def disarmed():
    yield
    faults.arm("")


def job(name: str, state: str, n_shards: int = 8, default: int = 0) -> Job:
    made = Job(name, state=state, n_shards=n_shards)
    (
        made.source("in", iterable([]), value=dict)
        .key_by("by", "user", value="n")
        .stateful_map("sum", lambda user, n, total: (total + n, total + n), default=default)
        .stateful_map("count", lambda user, total, n: ((total, n + 1), n + 1), default=0)
        .map("shown", lambda pair: pair[0])
        .sink("out", collect())
    )
    return made


def send(made: Job, keys, n: int) -> None:
    with MemoryRun(made, parallelism=2) as run:
        run.batch({"in": [{"user": key, "n": n} for key in keys]})


def held(made: Job) -> dict[str, dict]:
    store = open_store(made.state)
    found = states(store, StreamCheckpoints(store, made.name).latest())
    return {table: {key: msgspec.msgpack.decode(raw) for key, raw in keys.items()} for table, keys in found.items()}


@pytest.fixture
def two_jobs():
    """A source with keys to move and keys to keep, and a target with another number of shards, at another URL."""
    number = secrets.token_hex(4)
    source, target = job("source", f"memory:a-{number}"), job("target", f"memory:b-{number}", n_shards=4)
    send(source, MOVED + STAYS, 7)
    send(target, ["mine"], 1)
    return source, target


def places(source: Job, target: Job) -> tuple[JobPlace, JobPlace]:
    return JobPlace(source.name, source.state), JobPlace(target.name, target.state)


def test_keys_move_with_the_state_of_every_operator_and_go_on(two_jobs):
    source, target = two_jobs
    transfer = move(*places(source, target), keys=MOVED)
    assert transfer.keys == KEYS
    assert held(source) == {"sum": dict.fromkeys(STAYS, 7), "count": dict.fromkeys(STAYS, 1)}
    assert held(target) == {
        "sum": {**dict.fromkeys(MOVED, 7), "mine": 1},
        "count": {**dict.fromkeys(MOVED, 1), "mine": 1},
    }
    send(target, MOVED[:1], 3)
    send(source, MOVED[:1], 3)
    assert held(target)["sum"][MOVED[0]] == 10
    # In the source the key starts from the default.
    assert held(source)["sum"][MOVED[0]] == 3


def test_a_shard_moves_whole(two_jobs):
    source, target = two_jobs
    before = held(source)["sum"]
    move(*places(source, target), shards=[3])
    left, came = held(source)["sum"], held(target)["sum"]
    assert left.keys() | came.keys() == before.keys() | {"mine"}
    assert left.keys().isdisjoint(came)
    assert 80 < len(came) < 180


def test_a_stored_job_moves_keys_to_another(two_jobs):
    source, target = two_jobs
    stored, other = (StoredJob(made.name, state=made.state) for made in two_jobs)
    assert stored.move_to(other, keys=MOVED[:3]) == 3
    assert {key for key in held(target)["sum"] if key != "mine"} == set(MOVED[:3])
    assert MOVED[0] not in held(source)["sum"]


def test_nothing_of_a_finished_move_stays_behind(two_jobs):
    source, target = two_jobs
    move(*places(source, target), keys=MOVED[:10])
    assert open_store(source.state).list("source/transfers") == []
    assert open_store(target.state).list("target/transfers") == []
    move(*places(source, target), keys=MOVED[10:20])
    assert len(StreamCheckpoints(open_store(source.state), "source").latest().transfers_out) == 1


@pytest.mark.parametrize("first", ["source", "target"])
@pytest.mark.parametrize(("point", "hit"), LIVES)
def test_killed_at_every_point_each_key_is_in_exactly_one_job(two_jobs, point, hit, first):
    source, target = two_jobs
    faults.arm(f"{point}=raise@{hit}")
    with pytest.raises(faults.InjectedFault):
        move(*places(source, target), keys=MOVED)
    faults.arm("")
    for made in (source, target) if first == "source" else (target, source):
        with MemoryRun(made):
            pass
    left, came = held(source), held(target)
    assert left["sum"].keys() | came["sum"].keys() == {*MOVED, *STAYS, "mine"}
    for table, value in (("sum", 7), ("count", 1)):
        assert left[table].keys().isdisjoint(came[table])
        whole = {**left[table], **came[table]}
        assert all(whole[key] == value for key in MOVED)
    # All of them, or none: the source's commit decides.
    assert len(came["sum"]) in (1, KEYS + 1)
    moved = point in POINTS[2:]
    assert len(came["sum"]) == (KEYS + 1 if moved else 1)
    assert open_store(source.state).list("source/transfers") == []


def test_killed_while_finishing_it_is_finished_by_the_next_start(two_jobs):
    source, target = two_jobs
    faults.arm("move.let-go=raise")
    with pytest.raises(faults.InjectedFault):
        move(*places(source, target), keys=MOVED)
    for point in ("move.taken-in", "move.file-dropped"):
        faults.arm(f"{point}=raise")
        with pytest.raises(faults.InjectedFault):
            MemoryRun(target)
    faults.arm("")
    with MemoryRun(target):
        pass
    assert len(held(target)["sum"]) == KEYS + 1
    assert open_store(target.state).list("target/transfers") == []


@pytest.fixture
def two_folders(tmp_path):
    """Jobs whose state is in two folders. A start of either knows only its own."""
    source, target = job("source", f"file://{tmp_path}/a"), job("target", f"file://{tmp_path}/b")
    send(source, [*MOVED[:5], *STAYS], 7)
    send(target, ["mine"], 1)
    return source, target


@pytest.mark.parametrize("point", POINTS[1:])
def test_an_interrupted_move_between_state_urls_is_finished_with_both(two_folders, point):
    """A stored record names the other URL, and may be forged: a start does not open what it names."""
    source, target = two_folders
    faults.arm(f"{point}=raise")
    with pytest.raises(faults.InjectedFault):
        move(*places(source, target), keys=MOVED[:5])
    faults.arm("")
    with MemoryRun(source):
        pass
    app = typer.Typer()
    app.command()(move_command)
    command = ["source", "target", "--finish", "--state", source.state, "--to-state", target.state]
    with pytest.raises(StateError, match=f"tidewheel state move {' '.join(command)}"):
        MemoryRun(target)
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    with MemoryRun(target):
        pass
    left, came = held(source)["sum"], held(target)["sum"]
    assert left.keys().isdisjoint(came)
    assert len(left) + len(came) == 5 + len(STAYS) + 1
    assert len(came) == (6 if point in POINTS[2:] else 1)


def test_a_forged_notice_deletes_nothing_and_opens_nothing(two_folders, tmp_path):
    _, target = two_folders
    victim = tmp_path / "c" / "source" / "transfers" / "ab12.delta"
    victim.parent.mkdir(parents=True)
    victim.write_bytes(b"mine")
    forged = Transfer(
        "ab12",
        "r",
        JobPlace("source", f"file://{tmp_path}/c"),
        JobPlace("target", target.state),
        FileRef("transfers/ab12.delta", 4, 4),
        1,
    )
    open_store(target.state).create(forged.notice, msgspec.json.encode(forged))
    with pytest.raises(StateError, match="only state URLs that you give"):
        MemoryRun(target)
    assert [path.name for path in (tmp_path / "c").rglob("*")] == ["source", "transfers", "ab12.delta"]


def test_a_target_that_was_started_meanwhile_takes_in_at_its_next_start(two_jobs):
    source, target = two_jobs
    faults.arm("move.let-go=raise")
    with pytest.raises(faults.InjectedFault):
        move(*places(source, target), keys=MOVED)
    faults.arm("")
    with MemoryRun(target) as running:
        running.batch({"in": [{"user": "mine", "n": 1}]})
        with MemoryRun(source):
            pass
    assert len(held(target)["sum"]) == KEYS + 1
    assert held(target)["sum"]["mine"] == 2


@pytest.mark.parametrize("point", ["move.written", "move.announced", "move.let-go"])
def test_a_target_that_is_taken_over_meanwhile_overwrites_nothing(two_jobs, point, monkeypatch):
    """At each step somebody takes the target over, and the messages of a key that moves come to it."""
    source, target = two_jobs
    key = MOVED[0]

    def taken_over(reached: str) -> None:
        if reached == point:
            monkeypatch.undo()
            with MemoryRun(target, take_over=True) as run:
                run.batch({"in": [{"user": key, "n": 1}] * 5})

    monkeypatch.setattr(faults, "point", taken_over)
    with contextlib.suppress(FencedError):
        move(*places(source, target), keys=MOVED)
    for made in (target, source):
        with MemoryRun(made):
            pass
    left, came = held(source)["sum"], held(target)["sum"]
    moved = point == "move.let-go"
    assert came[key] == (7 + 5 if moved else 5)
    assert left.get(key) == (None if moved else 7)


def test_a_running_job_is_refused_and_nothing_has_moved(two_jobs):
    source, target = two_jobs
    for running in (source, target):
        with MemoryRun(running), pytest.raises(HeldError, match=f"job '{running.name}' is held by"):
            move(*places(source, target), keys=MOVED[:1])
    assert MOVED[0] in held(source)["sum"]


def test_a_key_that_the_target_holds_is_refused(two_jobs):
    source, target = two_jobs
    send(source, ["mine"], 1)
    with pytest.raises(StateError, match="job 'target' has state of the key 'mine' in 'count' already"):
        move(*places(source, target), keys=["mine"])


def test_a_target_that_lacks_an_operator_is_refused(two_jobs):
    source, _ = two_jobs
    other = Job("other", state=source.state)
    other.source("in", iterable([]), value=dict).key_by("by", "user", value="n").stateful_map(
        "sum", lambda user, n, total: (total + n, total + n), default=0
    ).sink("out", collect())
    send(other, ["mine"], 1)
    with pytest.raises(StateError, match=r"job 'other' has no operator 'count' with state \(it has sum\)"):
        move(*places(source, other), keys=MOVED[:1])


def test_what_cannot_be_meant_is_refused(two_jobs):
    source, target = two_jobs
    with pytest.raises(ConfigError, match="both the source and the target"):
        move(*places(source, source), keys=["a"])
    with pytest.raises(ConfigError, match="say what moves"):
        move(*places(source, target))
    with pytest.raises(StateError, match="none of these keys has state"):
        move(*places(source, target), keys=["nobody"])
    with pytest.raises(NotFound):
        move(JobPlace("nothing", source.state), JobPlace(target.name, target.state), keys=["a"])


def invoke(*arguments: str):
    app = typer.Typer()
    app.command()(move_command)
    return CliRunner().invoke(app, arguments)


def test_keys_move_from_the_shell(two_jobs):
    source, target = two_jobs
    result = invoke("source", "target", "user-1", "user-2", "--state", source.state, "--to-state", target.state)
    assert result.output == "moved 2 keys from source to target\n"
    assert held(target)["sum"] == {"mine": 1, "user-1": 7, "user-2": 7}
    result = invoke(
        "source", "target", "--shard", "0", "--shard", "1", "-s", source.state, "--to-state", target.state, "--json"
    )
    assert json.loads(result.output)["keys"] == len(held(target)["sum"]) - 3
    result = invoke("source", "target", "nobody", "--state", source.state, "--to-state", target.state)
    assert "the key nobody has no state in job 'source'" in str(result.exception)
