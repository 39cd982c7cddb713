"""The example from Kafka to PostgreSQL runs with one command, on servers of its own, and checks itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "kafka_totals.py"


def test_the_table_holds_exactly_what_was_paid():
    ended = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=500)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr[-3000:]}"
    assert "500 users; 3 messages were no payments" in ended.stdout
