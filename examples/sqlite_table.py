"""Write to a system without a connector, here SQLite, and make repeated writes harmless.

    tidewheel run examples/sqlite_table.py --until caught-up
    sqlite3 out/totals.db 'SELECT * FROM totals'

After a crash the sink may call the function again with the same records, so the function replaces the user's row.
"""

import sqlite3
from pathlib import Path
from typing import Any

from tidewheel import Job, agg, sinks, sources

DATA = Path(__file__).parent / "data"
TABLE = Path("out/totals.db").absolute()


def write(record: dict[str, Any]) -> None:
    """Insert the row of a user, or replace it."""
    TABLE.parent.mkdir(exist_ok=True)
    with sqlite3.connect(TABLE) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS totals (user TEXT PRIMARY KEY, orders INTEGER, cents INTEGER)")
        connection.execute("REPLACE INTO totals VALUES (:user, :orders, :cents)", record)


job = Job("sqlite-table")
orders = job.source("orders", sources.files(f"{DATA}/orders", schema="user string, cents long"))
totals = orders.key_by("by-user", "user").aggregate("totals", orders=agg.count(), cents=agg.sum("cents"))
totals.sink("out", sinks.for_each(write))
