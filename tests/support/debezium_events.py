"""Events as Debezium's PostgreSQL connector sends them, with and without schemas, and a model of the table behind them."""

from __future__ import annotations

import json
import random
from typing import Any

NOW = 1_767_225_600_000
_WITHOUT_NULLS = 10
"""The first changes of a history, whose rows have no nulls."""
"""The time of the first change, in milliseconds."""


def message(op: str, row: dict[str, Any] | None, *, at: int = NOW, schemas: bool = False, table: str = "customers"):
    """Return a message of a topic: the event of a change of this row, by its column id."""
    assert row is not None
    value = {
        "before": {**dict.fromkeys(row), "id": row["id"]} if op == "d" else None,
        "after": None if op == "d" else row,
        "op": op,
        "ts_ms": at + 500,
        "source": {"connector": "postgresql", "db": "shop", "schema": "public", "table": table, "ts_ms": at},
    }
    key: dict[str, Any] = {"id": row["id"]}
    if schemas:
        key, value = ({"schema": {"type": "struct"}, "payload": each} for each in (key, value))
    return {"key": json.dumps(key).encode(), "value": json.dumps(value).encode()}


def tombstone(id: int) -> dict[str, bytes | None]:
    """Return the message that follows a delete, so that a compacted topic loses the key."""
    return {"key": json.dumps({"id": id}).encode(), "value": None}


def history(seed: int, changes: int, ids: int = 6) -> tuple[list[dict[str, Any]], dict[int, dict[str, Any]]]:
    """Return random messages, some of them sent twice as after a crash of the connector, and the rows of the table after them.

    The first rows have no nulls: a sink that creates its table takes the columns of its first batch, and a column with only
    nulls has no type.
    """
    chance = random.Random(seed)
    table: dict[int, dict[str, Any]] = {}
    sent: list[dict[str, Any]] = []
    for number in range(changes):
        id, at = chance.randrange(ids), NOW + number
        row = {
            "id": id,
            "name": chance.choice("abc"),
            "cents": chance.choice([None, number]) if number >= _WITHOUT_NULLS else number,
        }
        if id in table and chance.random() < 0.3:
            del table[id]
            again = [message("d", row, at=at), tombstone(id)]
        else:
            op = "u" if id in table else chance.choice("cr")
            table[id] = row
            again = [message(op, row, at=at, schemas=chance.random() < 0.5)]
        sent += again * chance.choice([1, 1, 1, 2])
    return sent, table
