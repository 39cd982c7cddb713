"""Reference tables on Spark: versions, restarts, a rescale, a replay, a shadow run, a fork, and the output of commands."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tidewheel import Job, RunOptions, StoredJob, agg, sinks, sources, tables
from tidewheel._cli.commands import app
from tidewheel._ui.site import Site
from tidewheel._ui.views.jobs import overview
from tidewheel.errors import ConfigError, NotFound
from tidewheel.testing import golden, run_in_memory

SEED = 20261118
RECORDS = 3000


def made(folder, source, *, refresh=None, factor=1) -> Job:
    """A job that looks up the price of each order and sums prices by shop."""
    job = Job("shop", state=f"file://{folder}/state", n_shards=8, keep=1000)
    prices = job.table("prices", source, key="sku", refresh=refresh)
    schema = "id long, sku string, shop string"
    orders = job.source("in", sources.files(f"{folder}/in", "json", schema=schema, max_files_per_trigger=1))
    priced = orders.lookup("price", prices, on="sku", how="left")
    priced.sink("rows", sinks.files(f"{folder}/rows", format="json"))
    by_shop = priced.map("twice", lambda row: {"shop": row.shop, "cents": factor * (row.cents or 0)}).key_by(
        "by", "shop"
    )
    by_shop.aggregate("totals", cents=agg.sum("cents")).sink("sums", sinks.files(f"{folder}/sums", format="json"))
    return job


def write_orders(folder, number: int) -> list[dict]:
    draw = random.Random(f"{SEED}/{number}")
    orders = [
        {"id": number * RECORDS + n, "sku": f"s{draw.randrange(60)}", "shop": f"shop-{draw.randrange(4)}"}
        for n in range(RECORDS)
    ]
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / f"{number:03}.json").write_text("\n".join(map(json.dumps, orders)))
    return orders


def write_prices(folder, version: int) -> dict[str, int]:
    """Each version has other prices, and lacks other rows."""
    prices = {f"s{n}": 1000 * version + n for n in range(60) if n % 5 != version}
    pq.write_table(pa.table({"sku": list(prices), "cents": list(prices.values())}), folder / "prices.parquet")
    return prices


def rows_of(folder, sink: str) -> list[dict]:
    files = sorted((folder / sink).glob("*.json"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture(scope="module")
def ran(spark, tmp_path_factory):
    """Three runs with other parallelism, each with a new version of the table; return the folder and the expected rows."""
    folder = tmp_path_factory.mktemp("tables")
    expected = []
    for version, parallelism in ((1, 1), (2, 3), (3, 2)):
        prices = write_prices(folder, version)
        expected += [{**order, "cents": prices.get(order["sku"])} for order in write_orders(folder, version)]
        made(folder, folder / "prices.parquet").run(
            until="caught-up", parallelism=parallelism, options=RunOptions(spark=spark, local=f"{folder}/local")
        )
    return folder, expected


def test_every_record_has_the_value_of_the_version_of_its_batch(ran):
    folder, expected = ran
    found = [{name: row.get(name) for name in expected[0]} for row in rows_of(folder, "rows")]
    assert Counter(map(repr, found)) == Counter(map(repr, expected))


def test_replay_and_shadow_run_batches_with_the_same_table_version(ran):
    folder, _ = ran
    stored, job = StoredJob("shop", state=f"file://{folder}/state"), made(folder, folder / "gone.parquet")
    batches = [manifest for manifest in stored.list() if manifest.kind == "batch"]
    assert [manifest.tables["prices"].version for manifest in batches] == [1, 2, 3]
    assert all(stored.replay(job, manifest.sequence).same for manifest in batches)
    assert stored.shadow(job, last=2, old=made(folder, folder / "gone.parquet")).same
    changed = stored.shadow(made(folder, folder / "gone.parquet", factor=2), last=2)
    assert [difference.table for difference in changed.state] == ["totals"]


def test_a_fork_keeps_the_files_of_its_version(ran, spark):
    folder, _ = ran
    stored = StoredJob("shop", state=f"file://{folder}/state")
    stored.savepoint("before")
    stored.fork("before", "trial")
    fork = StoredJob("trial", state=stored.store.url)
    assert fork.verify().problems == ()
    assert fork.list()[-1].tables["prices"].files[0].name.startswith("/shop/state/")


def test_commands_and_the_page_show_version_and_rows(ran):
    folder, _ = ran
    said = CliRunner().invoke(app, ["status", "shop", "--state", f"file://{folder}/state"]).stdout
    assert "table prices: version 3, 48 rows, loaded at 20" in said
    program = folder / "program.py"
    program.write_text(
        "from tidewheel import Job, sinks, sources\n"
        f"job = Job('shop', state='file://{folder}/state', n_shards=8)\n"
        f"prices = job.table('prices', '{folder}/prices.parquet', key='sku')\n"
        "orders = job.source('in', sources.iterable([{'sku': ''}]))\n"
        "orders.lookup('price', prices, on='sku').sink('rows', sinks.discard())\n"
    )
    said = CliRunner().invoke(app, ["graph", str(program)]).stdout
    assert "prices.parquet, by sku, version 3, 48 rows" in " ".join(said.split())
    shown = overview(Site(f"file://{folder}/state"), "shop")["tables"]["prices"]
    assert (shown["version"], shown["rows"]) == (3, 48)


def test_a_table_from_a_session_function_can_change_between_batches(spark, tmp_path):
    loads = itertools.count(1)
    for number in range(3):
        write_orders(tmp_path, number)

    def frame(spark):
        version = next(loads)
        return spark.range(60).selectExpr("concat('s', id) AS sku", f"id + 1000 * {version} AS cents")

    made(tmp_path, frame, refresh="batch").run(
        until="caught-up", parallelism=2, options=RunOptions(spark=spark, local=f"{tmp_path}/local")
    )
    rows = rows_of(tmp_path, "rows")
    # The first load is before the first batch, which finds the table due again.
    versions = {number: {row["cents"] // 1000 for row in rows if row["id"] // RECORDS == number} for number in range(3)}
    assert versions == {0: {2}, 1: {3}, 2: {4}}
    assert all(row["cents"] % 1000 == int(row["sku"][1:]) for row in rows)


def test_a_table_that_does_not_fit_stops_the_start_before_a_commit(spark, tmp_path):
    write_orders(tmp_path, 1)
    options = RunOptions(spark=spark, local=f"{tmp_path}/local")
    twice = [{"sku": "s1", "cents": 1}, {"sku": "s1", "cents": 2}]
    for source, said in (
        (tmp_path / "none.parquet", "table 'prices' .* cannot be loaded: .*there is no file at"),
        (twice, "the key 's1' comes twice"),
        ([{"sku": 1, "cents": 1}], "'sku' has the type string in the stream and int64 in the table 'prices'"),
        ([{"ean": "s1"}], "there is no column 'sku'; it has ean"),
    ):
        with pytest.raises(Exception, match=said) as raised:
            made(tmp_path, source).run(until="caught-up", options=options)
        assert raised.type.__module__ == "tidewheel.errors"
    with pytest.raises(NotFound, match="nothing is committed"):
        StoredJob("shop", state=f"file://{tmp_path}/state")


def test_a_query_of_postgresql(postgres):
    postgres.query("CREATE TABLE prices (sku text PRIMARY KEY, cents bigint)")
    postgres.query("INSERT INTO prices VALUES ('tea', 300), ('milk', 90)")
    job = Job("queried", state="memory:")
    prices = job.table("prices", tables.sql("SELECT sku, cents FROM prices", postgres.dsn), key="sku")
    orders = job.source("in", sources.iterable([{"sku": "milk"}, {"sku": "tea"}]))
    orders.lookup("price", prices, on="sku").sink("out", sinks.collect())
    assert [row["cents"] for row in run_in_memory(job).outputs["out"]] == [90, 300]
    broken = Job("broken", state="memory:")
    table = broken.table("none", tables.sql("SELECT sku FROM nowhere", postgres.dsn), key="sku")
    broken.source("in", sources.iterable([{"sku": ""}])).lookup("look", table, on="sku").sink("out", sinks.collect())
    with pytest.raises(ConfigError, match=r"table 'none' \(a query at .*\) cannot be loaded: .*nowhere"):
        run_in_memory(broken)


def test_a_golden_run_with_crashes_and_rescales():
    def make():
        job = Job("program", n_shards=8, snapshot_every=2, keep=2, collect_every=3)
        users = job.table("users", [{"user": f"u{n}", "country": f"c{n % 3}"} for n in range(15)], key="user")
        limits = job.table("limits", lambda: [{"country": f"c{n}", "limit": n} for n in range(2)], key="country")
        clicks = job.source("in", sources.iterable([{"user": "", "n": 0}]))
        found = clicks.lookup("country", users, on="user").key_by("by-country", "country")
        limited = found.lookup("limit", limits, how="left")
        limited.aggregate("totals", n=agg.sum("n"), limit=agg.max("limit")).sink("out", sinks.collect())
        return job

    draw = random.Random(SEED)
    print(f"seed {SEED}")
    clicks = [{"user": f"u{draw.randrange(20)}", "n": draw.randrange(100)} for _ in range(300)]
    result = golden(make, {"in": clicks}, seed=SEED)
    sums = Counter()
    for click in clicks:
        if int(click["user"][1:]) < 15:
            sums[f"c{int(click['user'][1:]) % 3}"] += click["n"]
    last = {row["country"]: row for row in result.outputs["out"]}
    assert {country: row["n"] for country, row in last.items()} == sums
    assert [last[country]["limit"] for country in ("c0", "c1", "c2")] == [0, 1, None]
