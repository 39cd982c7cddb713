"""A job that looks up each record in a failing service is killed and resumed; the outcome is exact."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from chaos import harness
from servers.lookup_service import LookupService, running_service

PROGRAM = Path(__file__).with_name("lookup_program.py")
SEED = 20261118


def test_a_job_with_calls_is_killed_and_resumed_exactly(tmp_path):
    everything = harness.write_input(tmp_path, files=7, records=150, seed=SEED)
    print(f"seed {SEED}")
    service = LookupService(delay=0.005, failing=0.01, hanging=0.001, seed=SEED)
    with running_service(service):
        for point in ("task.output-prepared", "commit.before", "commit.created"):
            process = harness.start(tmp_path, f"{point}=kill@2", PROGRAM, port=str(service.port))
            status, _, err = harness.finish(process)
            assert status == -9, err[-3000:]
    # The service is down: the run ends with an error that says so, and the next one goes on.
    status, _, err = harness.finish(harness.start(tmp_path, "", PROGRAM, port=str(service.port), retries="1"))
    assert status not in (0, -9)
    assert "step 'look-up': ConnectionRefusedError" in err
    with running_service(service):
        status, _, err = harness.finish(harness.start(tmp_path, "", PROGRAM, port=str(service.port)))
        assert status == 0, err[-3000:]
    rows = harness.rows(tmp_path / "out")
    assert Counter((row["user"], row["amount"]) for row in rows) == Counter(everything)
    assert all(row["found"] == f"{row['user']}.{row['amount']}".upper() for row in rows)
    counts = Counter(user for user, _ in everything)
    assert {user: max(row["n"] for row in rows if row["user"] == user) for user in counts} == counts
    # A record that is asked for again after a kill has the key that it had before; another record has another key.
    asked = Counter(f"{user}.{amount}" for user, amount in everything)
    assert sum(service.requests.values()) > len(everything)
    assert {name: len(keys) for name, keys in service.keys.items()} == asked
