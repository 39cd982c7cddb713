"""B8: list, show, diff, verify, restore, savepoint and fork, on every store."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.internals import app, open_store
from tidewheel import Job, StoredJob
from tidewheel._checkpoint.names import folder
from tidewheel.errors import HeldError, NotFound, StateError, StorageError
from tidewheel.sinks import collect, discard, files
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun

_fresh = itertools.count()
BATCHES = [[{"user": f"u{(n * 7 + b) % 11}", "amount": n + b} for n in range(20)] for b in range(12)]


@pytest.fixture(params=["memory", "file", "s3"])
def url(request, tmp_path) -> str:
    name = f"b8-{next(_fresh)}"
    if request.param == "memory":
        return f"memory:{name}"
    if request.param == "file":
        return f"file://{tmp_path}/{name}"
    return request.getfixturevalue("seaweedfs").url(name)


@pytest.fixture
def local(tmp_path) -> str:
    return f"file://{tmp_path}/state"


def totals(url: str, sink=None, name: str = "orders", **settings) -> Job:
    job = Job(name, state=url, n_shards=4, **{"keep": 50, "snapshot_every": 3, **settings})
    (
        job.source("in", iterable([]), type=dict)
        .key_by("by-user", lambda record: record["user"])
        .stateful_map(
            "sum",
            lambda key, record, total: ({"user": key, "total": total + record["amount"]}, total + record["amount"]),
            default=0,
        )
        .sink("out", sink or discard())
    )
    return job


def run(job: Job, batches=BATCHES, parallelism: int = 2) -> None:
    """Run on from where the job stands: what a source with offsets does."""
    with MemoryRun(job, parallelism=parallelism) as going:
        done = -1 if going.run.head.batch is None else going.run.head.batch
        for records in batches[done + 1 :]:
            going.batch({"in": records})


def expected(batches=BATCHES) -> dict[str, int]:
    sums: dict[str, int] = {}
    for record in itertools.chain.from_iterable(batches):
        sums[record["user"]] = sums.get(record["user"], 0) + record["amount"]
    return sums


def rows(folder: Path) -> list[tuple[str, int]]:
    lines = (line for path in folder.glob("*.json") for line in path.read_text().splitlines())
    return sorted((row["user"], row["total"]) for row in map(json.loads, lines))


def batch_of(stored: StoredJob, number: int) -> int:
    """Return the sequence that committed a batch first."""
    return next(found.sequence for found in stored.list() if found.batch == number and found.kind == "batch")


def test_b8_list_and_show(url):
    run(totals(url), BATCHES[:4])
    stored = StoredJob("orders", state=url)
    assert [(found.sequence, found.kind, found.batch) for found in stored.list()] == [
        (1, "claim", None),
        *((number + 2, "batch", number) for number in range(4)),
        (6, "stop", 3),
    ]
    assert stored.show(3).event_count == 40
    assert stored.show().operators["sum"].codec == "msgpack"
    with pytest.raises(NotFound, match=r"no checkpoint 99.*6 are kept, from 1 to 6"):
        stored.show(99)
    with pytest.raises(NotFound, match=r"no checkpoint of a job 'other'.*'orders'"):
        StoredJob("other", state=url)


def test_b8_diff_names_the_keys_that_changed(url):
    job = totals(url)
    with MemoryRun(job) as going:
        going.batch({"in": [{"user": "ada", "amount": 1}, {"user": "bob", "amount": 2}]})
        going.batch({"in": [{"user": "bob", "amount": 3}, {"user": "cid", "amount": 4}]})
    stored = StoredJob("orders", state=url)
    (found,) = stored.diff(2, 3)
    assert (found.table, found.added, found.changed, found.dropped) == ("sum", 1, 1, 0)
    assert sorted((change.key, change.before, change.after) for change in found.samples) == [
        (b"sbob", b"\x02", b"\x05"),
        (b"scid", None, b"\x04"),
    ]
    (back,) = stored.diff(3, 2, samples=0)
    assert (back.added, back.changed, back.dropped, back.samples) == (0, 1, 1, ())
    assert stored.diff(3, 3) == []


def test_b8_verify_finds_every_missing_and_every_damaged_file(url):
    run(totals(url), BATCHES[:5])
    stored = StoredJob("orders", state=url)
    whole = stored.verify()
    assert whole.problems == ()
    assert whole.files == len({file for state in stored.list() for file in state.files()}) > 5
    store = open_store(url).at(folder("orders"))
    damaged, missing = sorted(file.name for file in stored.show().files())[:2]
    data = bytearray(store.read(damaged))
    data[len(data) // 2] ^= 1
    store.write(damaged, bytes(data))
    store.delete(missing)
    found = stored.verify()
    assert sorted(problem.what for problem in found.problems) == [damaged, missing]
    assert all(str(stored.show().sequence) in problem.checkpoints for problem in found.problems)


def test_b8_a_damaged_file_is_never_silently_used(url):
    run(totals(url), BATCHES[:3])
    stored = StoredJob("orders", state=url)
    store = open_store(url).at(folder("orders"))
    for file in stored.show().files():
        data = bytearray(store.read(file.name))
        data[3] ^= 0x40
        store.write(file.name, bytes(data))
    with pytest.raises(Exception, match=r"state file state/.*(damaged|checkpoint that does not need it)"):
        dict(stored.scan("sum"))
    with pytest.raises(Exception, match=r"state file state/"):
        run(totals(url), BATCHES[:4])
    assert stored.checkpoints.latest().batch == 2


@pytest.mark.parametrize("back", range(1, 11))
def test_b8_each_of_ten_restores_leads_to_the_same_end(tmp_path, local, back):
    """State and published output are those of a run that never went back."""
    plain = tmp_path / "plain"
    run(totals(f"file://{tmp_path}/other", files(plain, format="json")))
    out = tmp_path / "out"
    job = totals(local, files(out, format="json"))
    run(job)
    stored = StoredJob("orders", state=local)
    done = stored.restore(batch_of(stored, 11 - back))
    assert (done.kind, done.batch, done.lineage != stored.show(2).lineage) == ("restore", 11 - back, True)
    run(job, parallelism=1)
    assert dict(StoredJob("orders", state=local).scan("sum")) == expected()
    assert rows(out) == rows(plain)


def test_b8_restore_on_every_store(url):
    job = totals(url)
    run(job, BATCHES[:6])
    stored = StoredJob("orders", state=url)
    stored.restore(batch_of(stored, 2))
    assert dict(stored.scan("sum")) == expected(BATCHES[:3])
    run(job)
    assert dict(StoredJob("orders", state=url).scan("sum")) == expected()


def test_b8_restore_again_and_again(tmp_path, local):
    out = tmp_path / "out"
    job = totals(local, files(out, format="json"))
    for back in (3, 7, 1, 4):
        run(job)
        stored = StoredJob("orders", state=local)
        standing = [found for found in stored.list() if found.kind == "batch"]
        stored.restore([found.sequence for found in standing if found.batch == 11 - back][-1])
        stored.restore([found.sequence for found in standing if found.batch == 10 - back][-1])
    run(job)
    plain = tmp_path / "plain"
    run(totals(f"file://{tmp_path}/other", files(plain, format="json")))
    assert rows(out) == rows(plain)


def test_b8_unpublished_output_is_published_after_a_restore_to_it(tmp_path, local, monkeypatch):
    out = tmp_path / "out"
    sink = files(out, format="json")
    job = totals(local, sink)
    run(job, BATCHES[:2])
    monkeypatch.setattr(type(sink), "publish", lambda self, publication: (_ for _ in ()).throw(OSError("unplugged")))
    with pytest.raises(OSError, match="unplugged"), MemoryRun(job) as going:
        going.batch({"in": BATCHES[2]})
    monkeypatch.undo()
    stored = StoredJob("orders", state=local)
    pending = batch_of(stored, 2) if any(f.batch == 2 for f in stored.list()) else None
    if pending is None:  # The claim itself publishes what is owed, and failed.
        pending = stored.show().sequence
    stored.restore(2)
    stored.restore(pending)
    run(job)
    plain = tmp_path / "plain"
    run(totals(f"file://{tmp_path}/other", files(plain, format="json")))
    assert rows(out) == rows(plain)


def test_b8_a_sink_that_cannot_retract_refuses_the_run_without_keep_output(local):
    out = collect()
    job = totals(local, out)
    run(job, BATCHES[:4])
    stored = StoredJob("orders", state=local)
    stored.restore(3)
    with pytest.raises(StateError, match=r"restored to checkpoint 3, and the sink 'out'.*--keep-output"):
        run(job)
    stored.restore(3, keep_output=True)
    run(job)
    assert dict(StoredJob("orders", state=local).scan("sum")) == expected()
    assert len(out.records) == 20 * (4 + 12 - 2)


def test_b8_the_abandoned_future_stays_until_it_is_dropped(tmp_path, local):
    job = totals(local, files(tmp_path / "out", format="json"), keep=2, collect_every=1)
    run(job, BATCHES[:6])
    stored = StoredJob("orders", state=local)
    left = stored.show()
    done = stored.restore(left.sequence - 1)
    run(job)
    stored = StoredJob("orders", state=local)
    name = f"before-restore-{done.sequence}"
    assert dict(stored.scan("sum", at=name)) == expected(BATCHES[:6])
    with pytest.raises(StateError, match="was abandoned by the restore"):
        stored.restore(name)
    stored.restore(name, keep_output=True)
    assert dict(stored.scan("sum")) == expected(BATCHES[:6])
    stored.drop_savepoint(name)
    with pytest.raises(NotFound, match=name):
        stored.show(name)


def test_b8_a_restore_whose_commit_failed_can_be_made_again_also_to_another(local, monkeypatch):
    run(totals(local), BATCHES[:4])
    stored = StoredJob("orders", state=local)
    monkeypatch.setattr(stored.checkpoints, "commit", lambda commit: (_ for _ in ()).throw(StorageError("gone")))
    with pytest.raises(StorageError):
        stored.restore(3)
    monkeypatch.undo()
    done = stored.restore(2)
    assert [pin.name for pin in stored.checkpoints.pins.all()] == [f"before-restore-{done.sequence}"]
    assert dict(stored.scan("sum")) == expected(BATCHES[:1])


def test_b8_restore_of_a_running_job_is_refused(local):
    job = totals(local)
    with MemoryRun(job) as going:
        going.batch({"in": BATCHES[0]})
        going.batch({"in": BATCHES[1]})
        with pytest.raises(HeldError, match="is held by"):
            StoredJob("orders", state=local).restore(2)


def test_b8_retention_never_touches_a_savepoint(url):
    job = totals(url, keep=1, collect_every=1, grace="0 s")
    run(job, BATCHES[:3])
    StoredJob("orders", state=url).savepoint("before-the-change")
    run(job)
    stored = StoredJob("orders", state=url)
    stored.gc(keep=1, grace="0 s")
    assert dict(stored.scan("sum", at="before-the-change")) == expected(BATCHES[:3])
    assert stored.verify().problems == ()
    stored.drop_savepoint("before-the-change")
    assert stored.gc(grace="0 s", dry_run=True).files
    stored.gc(grace="0 s")
    assert dict(StoredJob("orders", state=url).scan("sum")) == expected()


def test_b8_a_dry_run_of_gc_lists_the_files_that_a_real_one_removes(local):
    run(totals(local, collect_every=1000))
    stored = StoredJob("orders", state=local)
    told = stored.gc(keep=1, grace="0 s", dry_run=True)
    assert told.files
    assert len(stored.list()) == 14
    assert stored.gc(keep=1, grace="0 s").files == told.files
    assert dict(StoredJob("orders", state=local).scan("sum")) == expected()


def test_b8_a_fork_shares_files_and_survives_collection_of_its_parent(url):
    job = totals(url, keep=1, collect_every=1, grace="0 s")
    run(job, BATCHES[:3])
    stored = StoredJob("orders", state=url)
    stored.savepoint("start")
    fork = stored.fork("start", "what-if")
    assert {file.name.split("/")[1] for file in fork.show().files()} == {"orders"}
    assert dict(fork.scan("sum")) == expected(BATCHES[:3])
    stored.drop_savepoint("start")
    run(job)
    StoredJob("orders", state=url).gc(keep=1, grace="0 s")
    run(totals(url, name="what-if"), BATCHES[:3] + BATCHES[:1])
    fork = StoredJob("what-if", state=url)
    assert dict(fork.scan("sum")) == expected(BATCHES[:3] + BATCHES[:1])
    assert fork.verify().problems == ()
    assert dict(StoredJob("orders", state=url).scan("sum")) == expected()
    fork.savepoint("again")
    with pytest.raises(StateError, match="already"):
        fork.fork("again", "orders")


def test_b8_a_fork_of_a_fork_outlives_both(local):
    run(totals(local, keep=1, collect_every=1, grace="0 s"), BATCHES[:2])
    first = StoredJob("orders", state=local)
    first.savepoint("a")
    second = first.fork("a", "second")
    second.savepoint("b")
    third = second.fork("b", "third")
    first.drop_savepoint("a")
    first.checkpoints.pins.drop("fork-second")
    second.drop_savepoint("b")
    run(totals(local, keep=1, collect_every=1, grace="0 s"), BATCHES)
    StoredJob("orders", state=local).gc(keep=1, grace="0 s")
    assert dict(third.scan("sum")) == expected(BATCHES[:2])


def cli(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == status, result.output
    return result.output


def test_b8_the_same_from_the_shell(local):
    run(totals(local), BATCHES[:4])
    listed = [json.loads(line) for line in cli("checkpoints", "list", "orders", "-s", local, "--json").splitlines()]
    assert [row["batch"] for row in listed] == [None, 0, 1, 2, 3, 3]
    assert json.loads(cli("checkpoints", "show", "orders", "3", "-s", local))["events"] == 40
    assert "sum: " in cli("checkpoints", "diff", "orders", "2", "5", "-s", local)
    assert "all good" in cli("checkpoints", "verify", "orders", "-s", local)
    assert "checkpoint 6" in cli("checkpoints", "savepoint", "orders", "mine", "-s", local)
    assert "begins at 7" in cli("checkpoints", "fork", "orders", "mine", "theirs", "-s", local)
    assert "checkpoint 3 is restored, as commit 7" in cli("checkpoints", "restore", "orders", "3", "-s", local)
    assert "would go" in cli("checkpoints", "gc", "orders", "-s", local, "--dry-run")
    assert "0 files" in cli("checkpoints", "gc", "orders", "-s", local)
    assert "before the job's first batch" in cli("checkpoints", "restore", "orders", "1", "-s", local)
    looked_up = ("state", "keys", "orders", "sum", "-s", local)
    assert "restored to checkpoint 1" in (told := cli(*looked_up, status=1)), told
    assert "the savepoint before-restore-8" in told
    assert cli(*looked_up, "--at", "before-restore-8")
    assert "checkpoint 7 is restored, as commit 9" in cli(
        "checkpoints", "restore", "orders", "before-restore-8", "-s", local, "--keep-output"
    )
    store = open_store(local).at("orders")
    store.delete(next(iter(StoredJob("orders", state=local).show().files())).name)
    assert "1 problems" in cli("checkpoints", "verify", "orders", "-s", local, status=1)
    assert "no checkpoint 77" in cli("checkpoints", "restore", "orders", "77", "-s", local, status=1)
