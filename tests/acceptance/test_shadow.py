"""A changed program runs over the batches of a job, and its changes are reported exactly."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tidewheel import Job, RunOptions, StoredJob
from tidewheel.errors import ConfigError, NotFound
from tidewheel.sinks import files as file_sink
from tidewheel.sources import files

DOCS = Path(__file__).parents[2] / "docs"


def totals(user, order, total):
    return {"cents": order.cents, "total": total + order.cents}, total + order.cents


def with_bonus(user, order, total):
    """Give one order of exactly 13 cents twice: the wrong line."""
    cents = order.cents * 2 if order.cents == 13 else order.cents
    return {"cents": cents, "total": total + cents}, total + cents


def spending(folder: Path, step=totals, name="total", **options) -> Job:
    job = Job("spending", state=f"file://{folder}/state", n_shards=4, keep=100)
    schema = "user string, cents long"
    orders = job.source("orders", files(f"{folder}/in", format="json", schema=schema, max_files_per_trigger=1))
    by_user = orders.key_by("by-user", "user").stateful_map(name, step, default=0, **options)
    by_user.sink("out", file_sink(f"{folder}/out", format="json"))
    return job


def write(folder: Path, number: int) -> list[dict]:
    (folder / "in").mkdir(exist_ok=True)
    orders = [{"user": f"u{n % 7}", "cents": number * 50 + n} for n in range(50)]
    (folder / "in" / f"{number:03}.json").write_text("".join(json.dumps(order) + "\n" for order in orders))
    return orders


@pytest.fixture(scope="module")
def ran(spark, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shadow")
    for number in range(6):
        write(folder, number)
    run(spark, folder)
    return folder


def run(spark, folder: Path) -> None:
    options = RunOptions(spark=spark, local=f"{folder}/local")
    spending(folder).run(until="caught-up", parallelism=2, options=options)


def test_the_same_program_changes_nothing(ran):
    stored = StoredJob("spending", state=f"file://{ran}/state")
    before = sorted((entry.path, entry.size, entry.modified) for entry in stored.store.list())
    found = stored.shadow(spending(ran), last=6, old=spending(ran))
    assert found.same, found
    assert (found.batches, found.records) == (6, 300)
    assert sorted((entry.path, entry.size, entry.modified) for entry in stored.store.list()) == before


def test_a_wrong_line_is_found_with_exactly_the_rows_that_it_changes(ran):
    """The order of 13 cents is of user u6; each later row of that user has another total."""
    stored = StoredJob("spending", state=f"file://{ran}/state")
    found = stored.shadow(spending(ran, with_bonus), last=6, old=spending(ran), samples=1000)
    orders = [json.loads(line) for path in sorted((ran / "in").iterdir()) for line in path.read_text().splitlines()]
    mine = [order["cents"] for order in orders if order["user"] == "u6"]
    changed = mine[mine.index(13) :]
    assert set(found.rows) == {"out"}
    rows = found.rows["out"]
    assert (rows.removed, rows.added) == (len(changed), len(changed))
    assert {row["user"] for row in (*rows.removed_samples, *rows.added_samples)} == {"u6"}
    assert sorted(row["cents"] for row in rows.removed_samples) == sorted(changed)
    assert {row["total"] for row in rows.added_samples} == {row["total"] + 13 for row in rows.removed_samples}
    assert found.counts == {}
    (difference,) = found.state
    assert (difference.table, difference.changed, difference.added, difference.dropped) == ("total", 1, 0, 0)


def test_a_wrong_line_is_found_in_the_words_of_real_texts(spark, tmp_path):
    """The words of four pages; the wrong line counts one word twice where its line begins with a dash."""
    (tmp_path / "in").mkdir()
    lines = []
    for number, page in enumerate(("howto-debug", "checkpoints", "time", "running")):
        found = [
            {"word": word, "dash": line.startswith("-")}
            for line in (DOCS / f"{page}.md").read_text().splitlines()
            for word in re.findall(r"[a-z]+", line.lower())
        ]
        lines += found
        (tmp_path / "in" / f"{number}.json").write_text("".join(json.dumps(each) + "\n" for each in found))

    def counting(times) -> Job:
        job = Job("words", state=f"file://{tmp_path}/state", n_shards=4, keep=100)
        pages = files(f"{tmp_path}/in", format="json", schema="word string, dash boolean", max_files_per_trigger=1)
        words = job.source("words", pages).key_by("by-word", "word")
        counted = words.stateful_map("count", lambda word, row, n: (n + times(row), n + times(row)), default=0)
        counted.sink("out", file_sink(f"{tmp_path}/out", format="json"))
        return job

    def wrong(row):
        return 2 if row.word == "state" and row.dash else 1

    options = RunOptions(spark=spark, local=f"{tmp_path}/local")
    counting(lambda row: 1).run(until="caught-up", parallelism=2, options=options)
    found = StoredJob("words", state=f"file://{tmp_path}/state").shadow(
        counting(wrong), last=4, old=counting(lambda row: 1), samples=10_000
    )
    assert found.records == len(lines) > 5000
    mine = [line for line in lines if line["word"] == "state"]
    first = next(number for number, line in enumerate(mine) if line["dash"])
    right, changed = range(1, len(mine) + 1), list(itertools.accumulate(1 + line["dash"] for line in mine))
    removed, added = Counter(right) - Counter(changed), Counter(changed) - Counter(right)
    rows = found.rows["out"]
    assert 0 < first < len(mine) - 1
    assert (rows.removed, rows.added) == (removed.total(), added.total())
    assert Counter(row["value"] for row in rows.added_samples) == added
    assert {row["word"] for row in (*rows.removed_samples, *rows.added_samples)} == {"state"}
    assert [(each.table, each.added, each.changed, each.dropped) for each in found.state] == [("count", 0, 1, 0)]


def test_without_the_old_program_state_is_compared(ran):
    stored = StoredJob("spending", state=f"file://{ran}/state")
    found = stored.shadow(spending(ran, with_bonus), last=6)
    assert not found.same
    assert found.rows == {}
    assert [difference.table for difference in found.state] == ["total"]


def test_state_is_converted_as_in_a_real_start(ran):
    """The step begins with a version 2, whose state is in tenths of cents."""

    def in_tenths(user, order, total):
        return {"cents": order.cents, "total": (total + order.cents * 10) // 10}, total + order.cents * 10

    stored = StoredJob("spending", state=f"file://{ran}/state")
    changed = spending(ran, in_tenths, version=2, upgrade=lambda total, version: total * 10)
    found = stored.shadow(changed, last=3, old=spending(ran))
    assert found.rows == {}
    assert found.state[0].changed == 7


def test_a_renamed_step_with_an_upgrade_is_the_same_step(ran):
    def in_tenths(user, order, total):
        return {"cents": order.cents, "total": (total + order.cents * 10) // 10}, total + order.cents * 10

    stored = StoredJob("spending", state=f"file://{ran}/state")
    for step, options, changed in (
        (totals, {}, []),
        (in_tenths, {"version": 2, "upgrade": lambda total, version: total * 10}, [("spent", 0, 7, 0)]),
    ):
        renamed = spending(ran, step, name="spent", **options)
        renamed.alias("spent", "total")
        found = stored.shadow(renamed, last=3, old=spending(ran))
        assert found.rows == {}
        assert [(each.table, each.added, each.changed, each.dropped) for each in found.state] == changed


def test_another_program_as_the_old_one_is_refused(ran):
    stored = StoredJob("spending", state=f"file://{ran}/state")
    with pytest.raises(ConfigError, match=r"gives another state than commit .*: step 'total', key 'u6'"):
        stored.shadow(spending(ran), last=6, old=spending(ran, with_bonus))


def test_batches_that_are_not_kept_are_refused(ran):
    stored = StoredJob("spending", state=f"file://{ran}/state")
    with pytest.raises(NotFound, match="only 6 batches of job 'spending' can be repeated, not 99"):
        stored.shadow(spending(ran), last=99)


def test_the_commits_of_the_job_continue_meanwhile(spark, tmp_path):
    """The job commits more batches between two batches of the shadow; the shadow ends where it began to look."""
    for number in range(3):
        write(tmp_path, number)
    run(spark, tmp_path)
    stored = StoredJob("spending", state=f"file://{tmp_path}/state")
    stored.savepoint("before", stored.list()[0].sequence)
    ran_once = []

    def and_run_the_job(user, order, total):
        if not ran_once:
            ran_once.append(True)
            write(tmp_path, 3)
            run(spark, tmp_path)
        return totals(user, order, total)

    newest, last = stored.show().sequence, stored.list()[-2].sequence
    found = stored.shadow(spending(tmp_path, and_run_the_job), since="before", old=spending(tmp_path))
    assert found.same, found
    assert (found.batches, found.last) == (3, last)
    assert stored.show().sequence > newest
