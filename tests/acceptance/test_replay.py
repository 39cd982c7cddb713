"""The batch of a commit runs again in one process with the same result; differences are found and named."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import pty
import random
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.driven import run_divided
from tidewheel import Job, Message, RunOptions, StatefulLogic, StoredJob, Timer, agg, tumbling
from tidewheel.errors import ConfigError, NotFound
from tidewheel.sinks import collect
from tidewheel.sources import dataframe, files, iterable

SEED = 29
TIMES = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\d+\.\d s"
PAGE = (Path(__file__).parents[2] / "docs" / "howto-debug.md").read_text()


@dataclass
class Order:
    user: str
    cents: int
    at: int


@dataclass
class Payment:
    user: str
    at: int


class Reminder(StatefulLogic[int, Order, str]):
    """Counts orders, and emits the count an hour after the last one."""

    def on_data(self, message: Message, state: int, output) -> int:
        output.set_timer(message.time + 3600)
        return state + 1

    def on_timer(self, timer: Timer, state: int, output) -> int:
        output.emit(f"{state} orders")
        return state


ORDERS = [Order(f"u{n % 5}", n, 60 * n) for n in range(200)]
PAYMENTS = [Payment(f"u{n % 5}", 60 * n + 30) for n in range(0, 200, 3)]


def everything(state: str, total=lambda user, order, total: (total + order.cents, total + order.cents)) -> Job:
    """A job with cells, windows, timers, a join and dead letters."""
    job = Job("everything", state=state, n_shards=8, keep=1000)
    least = job.cell("least", int, default=3)
    time = {"unit": "ns", "max_delay": "120 ns"}
    orders = job.source("orders", iterable(ORDERS, batch_size=50)).event_time("at", name="order-time", **time)
    payments = job.source("payments", iterable(PAYMENTS, batch_size=20)).event_time("at", name="payment-time", **time)

    def checked(order: Order) -> Order:
        if order.cents % 31 == 30:
            raise ValueError("not an amount")
        return order

    by_user = (
        orders.map("check", checked).filter("large", lambda order: order.cents >= least.value).key_by("by-user", "user")
    )
    by_user.stateful_map("total", total, default=0).sink("totals", collect())
    windows = by_user.window("hourly", tumbling("3600 ns"), cents=agg.sum("cents"))
    windows.sink("hours", collect())
    by_user.stateful_op("remind", Reminder(), default=0).sink("reminders", collect())
    joined = by_user.interval_join("paid", payments.key_by("payer", "user"), before="100 ns", after="100 ns")
    joined.map("pair", lambda pair: {"order": pair.left.cents}).sink("paid-out", collect())
    for number, late in enumerate((orders.late, payments.late, windows.late)):
        late.sink(f"late-{number}", collect())
    job.dead_letter("dead", collect())
    return job


@pytest.fixture(scope="module")
def ran(spark, tmp_path_factory) -> str:
    """Run the job, and return its state URL."""
    folder = tmp_path_factory.mktemp("replay")
    everything(f"file://{folder}/state").run(
        until="end", parallelism=2, options=RunOptions(spark=spark, local=f"{folder}/local")
    )
    return f"file://{folder}/state"


def batches(stored: StoredJob) -> list[int]:
    return [manifest.sequence for manifest in stored.list() if manifest.kind in ("batch", "epoch", "flush")]


def test_every_batch_of_a_job_gives_the_same_again(ran):
    stored = StoredJob("everything", state=ran)
    before = sorted((entry.path, entry.size, entry.modified) for entry in stored.store.list())
    results = [stored.replay(everything(ran), sequence) for sequence in batches(stored)]
    assert [result for result in results if not result.same] == []
    assert len(results) > 4
    written = {sink for result in results for sink, rows in result.rows.items() if rows}
    assert {"totals", "hours", "reminders", "paid-out", "dead"} <= written
    assert sorted((entry.path, entry.size, entry.modified) for entry in stored.store.list()) == before


def _mapped_copies() -> set[str]:
    return set(re.findall(r"\S*tidewheel-replay\S*\.mdb", Path("/proc/self/maps").read_text()))


def test_a_replay_closes_its_local_copies(ran):
    """A process that replays many batches, such as a notebook, would run out of descriptors."""
    stored = StoredJob("everything", state=ran)
    before = _mapped_copies()
    stored.replay(everything(ran), batches(stored)[-1])
    assert _mapped_copies() <= before


def test_a_changed_program_shows_the_keys_that_it_changes(ran):
    stored = StoredJob("everything", state=ran)
    wrong = everything(ran, lambda user, order, total: (total + order.cents, total + order.cents + (order.cents == 13)))
    found = [
        (result.sequence, result.state)
        for sequence in batches(stored)
        if (result := stored.replay(wrong, sequence, changed=True)).state
    ]
    assert len(found) == 1, "one order has 13 cents"
    (difference,) = found[0][1]
    assert (difference.table, difference.changed, difference.added, difference.dropped) == ("total", 1, 0, 0)


def test_every_batch_gives_the_same_again_on_spark(ran, spark):
    stored = StoredJob("everything", state=ran)
    before = sorted((entry.path, entry.size, entry.modified) for entry in stored.store.list())
    results = [
        stored.replay(everything(ran), sequence, options=RunOptions(spark=spark)) for sequence in batches(stored)[:2]
    ]
    assert [result for result in results if not result.same] == []
    here = [stored.replay(everything(ran), sequence) for sequence in batches(stored)[:2]]
    assert [result.rows for result in results] == [result.rows for result in here]
    assert sorted((entry.path, entry.size, entry.modified) for entry in stored.store.list()) == before
    with pytest.raises(ConfigError, match="run in this process: leave out options"):
        stored.replay(everything(ran), "next", options=RunOptions(spark=spark))


def test_a_program_that_is_not_deterministic_is_found_with_step_and_key(ran):
    stored, draw = StoredJob("everything", state=ran), random.Random(1)
    unsteady = everything(ran, lambda user, order, total: (total + draw.random(), total + order.cents))
    result = stored.replay(unsteady, batches(stored)[0], changed=True)
    assert not result.same
    assert set(result.unstable) == {"totals"}
    assert result.state == ()
    cause = result.causes["totals"]
    assert (cause.step, cause.key in {f"u{n}" for n in range(5)}) == ("total", True)
    assert cause.one
    assert set(cause.one).isdisjoint(cause.other)


def sums(folder: Path, amount) -> Job:
    """A job with floats, whose sums depend on their order."""
    job = Job("sums", state=f"file://{folder}/state", n_shards=8, keep=100)
    orders = job.source("orders", files(f"{folder}/in", schema="user string, cents double", max_files_per_trigger=2))
    by_user = orders.map("amount", amount, returns=dict).key_by("by-user", "user")
    by_user.aggregate("sum", cents=agg.sum("cents"), mean=agg.mean("cents")).sink("out", collect())
    again = by_user.aggregate("one", cents=agg.sum("cents")).key_by("all", lambda row: 0)
    again.aggregate("together", cents=agg.sum("cents")).sink("all-out", collect())
    return job


@pytest.fixture(scope="module")
def summed(spark, tmp_path_factory) -> Path:
    """Run the job of floats with two tasks a batch."""
    folder, draw = tmp_path_factory.mktemp("sums"), random.Random(SEED)
    (folder / "in").mkdir()
    for number in range(4):
        users = [f"u{draw.randrange(50)}" for _ in range(40_000)]
        cents = [draw.uniform(-1e9, 1e9) for _ in users]
        pq.write_table(pa.table({"user": users, "cents": cents}), folder / "in" / f"{number}.parquet")
    run_divided(sums(folder, unchanged), until="caught-up", parallelism=2, spark=spark, local=f"{folder}/local")
    return folder


def unchanged(row):
    return {"user": row.user, "cents": row.cents}


def test_sums_of_floats_are_the_same_because_the_tasks_are(summed, spark):
    """A batch with two tasks adds in another order than one with one task."""
    stored = StoredJob("sums", state=f"file://{summed}/state")
    assert {stored.show(sequence).layout for sequence in batches(stored)} == {"divided"}
    for sequence in batches(stored):
        assert stored.replay(sums(summed, unchanged), sequence).same
    (newest,) = batches(stored)[-1:]
    assert stored.replay(sums(summed, unchanged), newest, options=RunOptions(spark=spark)).same
    assert stored.shadow(sums(summed, unchanged), last=2, old=sums(summed, unchanged)).same


def test_the_step_before_the_state_that_differs_is_named(summed):
    """The function before the state is what draws a number."""
    draw = random.Random(SEED)

    def unsteady(row):
        return {"user": row.user, "cents": draw.random() if row.user == "u7" else row.cents}

    stored = StoredJob("sums", state=f"file://{summed}/state")
    (newest,) = batches(stored)[-1:]
    result = stored.replay(sums(summed, unsteady), newest, changed=True)
    assert {difference.table for difference in result.state} == {"one", "sum", "together"}
    assert result.causes["out"].step == "amount"
    assert {value["user"] for value in (*result.causes["out"].one, *result.causes["out"].other)} == {"u7"}


def test_a_replay_lets_reference_tables_go(spark, tmp_path):
    """A process that replays many batches would map a copy of each table for each of them."""
    pq.write_table(pa.table({"sku": ["a", "b"], "cents": [1, 2]}), tmp_path / "prices.parquet")
    job = Job("priced", state=f"file://{tmp_path}/state", n_shards=4, keep=100)
    prices = job.table("prices", f"{tmp_path}/prices.parquet", key="sku")
    sold = job.source("sold", iterable([{"sku": "ab"[n % 2]} for n in range(10)], batch_size=5))
    sold.lookup("priced", prices, on="sku").sink("out", collect())
    job.run(until="caught-up", options=RunOptions(spark=spark, local=f"{tmp_path}/local"))
    stored = StoredJob("priced", state=job.state)
    assert all(stored.replay(job, sequence).same for sequence in batches(stored))
    # The objects of a task refer to one another.
    gc.collect()
    mapped = Path("/proc/self/maps").read_text()
    assert [line for line in mapped.splitlines() if "tidewheel-replay" in line and ".arrow" in line] == []


def test_the_history_of_a_key_and_its_messages_equal_a_plain_count(ran):
    stored = StoredJob("everything", state=ran)
    history = stored.history("total", "u2")
    mine = [order for order in ORDERS if order.user == "u2" and order.cents >= 3 and order.cents % 31 != 30]
    traced = [stored.messages(everything(ran), version.sequence, "total", "u2") for version in history.versions]
    messages = [message for batch in traced for message in batch]
    reached = [message for message in messages if message.dropped is None]
    assert [message.value.cents for message in reached] == [order.cents for order in mine]
    sums = list(itertools.accumulate(order.cents for order in mine))
    assert [(message.before, message.after) for message in reached] == list(zip([None, *sums], sums, strict=False))
    assert {(message.source, message.place["item"] == message.value.cents) for message in messages} == {
        ("orders", True)
    }
    lost = {message.value.cents: message.dropped for message in messages if message.dropped is not None}
    assert lost == {2: "step 'large'", 92: "step 'check': rejected"}
    assert [version.value for version in history.versions] == [
        [message.after for message in batch if message.dropped is None][-1] for batch in traced
    ]
    assert history.versions[1].difference == history.versions[1].value - history.versions[0].value
    assert not stored.history("total", "nobody").found


@pytest.mark.parametrize(
    ("sequence", "error", "text"),
    [
        (1, ConfigError, "commit 1 of job 'everything' is of the kind 'claim' and has no batch"),
        (999, NotFound, "commit 999 of job 'everything' is not kept; kept are 1 to"),
    ],
)
def test_a_commit_that_cannot_run_again_is_refused(ran, sequence, error, text):
    with pytest.raises(error, match=text):
        StoredJob("everything", state=ran).replay(everything(ran), sequence)


def test_a_job_without_new_data_has_no_next_batch(ran):
    with pytest.raises(ConfigError, match="has no data after commit"):
        StoredJob("everything", state=ran).replay(everything(ran), "next")


def test_a_batch_whose_base_is_not_kept_is_refused(spark, tmp_path):
    job = Job("short", state=f"file://{tmp_path}/state", n_shards=4, keep=100)
    job.source("in", iterable([1, 2, 3], batch_size=1)).sink("out", collect())
    job.run(until="end", options=RunOptions(spark=spark, local=f"{tmp_path}/local"))
    stored = StoredJob("short", state=job.state)
    stored.gc(keep=len(stored.list()) - 1)
    oldest = stored.list()[0]
    assert oldest.kind in ("batch", "flush")
    with pytest.raises(NotFound, match=f"was computed from the state of commit {oldest.parent}, which is not kept"):
        stored.replay(job, oldest.sequence)


def test_a_program_without_the_sources_of_the_batch_is_refused(ran):
    other = Job("everything", state=ran, n_shards=8)
    other.source("orders", iterable(ORDERS)).sink("out", collect())
    stored = StoredJob("everything", state=ran)
    with pytest.raises(ConfigError, match="has read the source 'payments', which the program does not have"):
        stored.replay(other, batches(stored)[0], changed=True)
    frames = Job("everything", state=ran, n_shards=8)
    for name in ("orders", "payments"):
        frames.source(name, dataframe(lambda spark: None)).sink(f"out-{name}", collect())
    with pytest.raises(ConfigError, match="is read by Spark, and its records cannot be read again here"):
        stored.replay(frames, batches(stored)[0], changed=True)


def test_the_page_runs_as_printed_and_the_debugger_stops_at_an_error(tmp_path):
    """The program and the commands of docs/howto-debug.md; then --pdb, through a pseudo-terminal."""
    program = re.search(r"```python\n(.*?)```", PAGE, re.S)
    assert program is not None
    (tmp_path / "spent.py").write_text(program[1])
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    printed = []
    for block in re.findall(r"```shell\n(.*?)```", PAGE, re.S):
        ended = subprocess.run(["sh", "-ec", block], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, (block, ended.stderr)
        printed.append(re.sub(TIMES, "TIME", ended.stdout))
    shown = re.sub(TIMES, "TIME", PAGE)
    for output in printed[1:]:
        assert output.strip(), "each command prints something"
        assert all(f"    {line}" in shown for line in output.splitlines()), output
    text = (tmp_path / "spent.py").read_text().replace("total + order.cents)", "total // (order.cents + 900))")
    (tmp_path / "broken.py").write_text(text)
    assert "Row(cents=-900)" in debugged(tmp_path, environment, "spent.py", "4", "--program", "broken.py")
    refused = subprocess.run(
        ["tidewheel", "replay", "broken.py", "4"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert refused.returncode == 1
    assert "another program made commit 4 of job 'spent'" in refused.stderr
    told = debugged(tmp_path, environment, "spent.py", "4", "--key", "ada", answers=("p total", "c", "p total", "c"))
    assert re.findall(r"p total\s+(-?\d+)", told) == ["250", "350"], told
    assert "same: commit 4 gives the same state" in told
    # A batch that fails is never committed: it runs under the debugger too.
    (tmp_path / "orders" / "4.json").write_text('{"user": "bob", "cents": -900}\n')
    failed = subprocess.run(
        ["tidewheel", "run", "broken.py", "--until", "caught-up"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert failed.returncode == 1
    assert "ZeroDivisionError" in failed.stderr
    assert "Row(cents=-900)" in debugged(tmp_path, environment, "broken.py", "next")
    passing = subprocess.run(
        ["tidewheel", "replay", "spent.py", "next", "--rows"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert '{"sink":"out","row":{"user":"bob","value":-600}}' in passing.stdout, passing


def debugged(
    folder: Path, environment: dict[str, str], *arguments: str, answers: tuple[str, ...] = ("p order", "q")
) -> str:
    """Start `tidewheel replay --pdb` at a terminal, ask for the record, quit, and return all that was printed."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        ["tidewheel", "replay", *arguments, "--pdb"],
        cwd=folder,
        env=environment,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    printed = ""
    for answer in answers:
        while not printed.endswith("(Pdb) "):
            printed += os.read(master, 1000).decode()
        os.write(master, f"{answer}\n".encode())
        printed += " "
    with contextlib.suppress(OSError):  # The terminal is closed when the process has ended.
        while more := os.read(master, 1000):
            printed += more.decode()
    process.wait()
    os.close(master)
    return printed
