"""A job whose table changes before each batch is killed around the commits of versions; the outcome is exact."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from chaos import harness, tables_program
from tidewheel import StoredJob
from tidewheel._engine.table_rows import read_table

PROGRAM = Path(__file__).with_name("tables_program.py")
SEED = 20261118


def test_each_batch_has_one_table_version_if_pinning_is_killed(tmp_path):
    everything = harness.write_input(tmp_path, files=6, records=100, seed=SEED)
    print(f"seed {SEED}")
    for tasks, armed in enumerate(("tables.stored=kill@2", "tables.pinned=kill@2"), 1):
        status, _, err = harness.finish(harness.start(tmp_path, armed, PROGRAM, parallelism=str(tasks)))
        assert status == -9, err[-3000:]
    status, _, err = harness.finish(harness.start(tmp_path, "", PROGRAM))
    assert status == 0, err[-3000:]
    rows = harness.rows(tmp_path / "out")
    assert Counter((row["user"], row["amount"]) for row in rows) == Counter(everything)
    counts = Counter(user for user, _ in everything)
    assert {user: max(row["n"] for row in rows if row["user"] == user) for user in counts} == counts
    # A batch, which is a file of the input, has one version, and users that this version lacks have none.
    stored = StoredJob("chaos", state=f"file://{tmp_path}/state")
    batches = [manifest for manifest in stored.list() if manifest.kind == "batch"]
    loads = []
    for manifest in batches:
        table = read_table(stored.store, "chaos", manifest.tables["users"]).to_pydict()
        loads += set(table["load"])
    of_rows = Counter(row["load"] for row in rows if row["load"] is not None)
    assert len(loads) == len(set(loads)) == 6
    assert set(of_rows) == set(loads)
    lacking = [row["user"] for row in rows if row["load"] is None]
    assert len(lacking) == len(everything) - sum(of_rows.values())
    job = tables_program.build(str(tmp_path))
    assert all(stored.replay(job, manifest.sequence).same for manifest in batches)
