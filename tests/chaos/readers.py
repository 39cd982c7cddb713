"""Readers that look at a sink continuously and check that what they see is always exact.

The rows of each user must be numbered from 1 without gaps or repetitions, with the right totals. While a server is down after a
kill, the reader retries.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterable

import pyarrow as pa

Numbered = tuple[str, int, int]
"""User, number, total."""

_PAUSE = 0.2


class Expected:
    """The running totals of each user, and their sums."""

    def __init__(self, records: Iterable[tuple[str, int]]) -> None:
        amounts: dict[str, list[int]] = {}
        for user, amount in records:
            amounts.setdefault(user, []).append(amount)
        self.totals = {user: list(itertools.accumulate(each)) for user, each in amounts.items()}
        self._sums = {user: list(itertools.accumulate(each, initial=0)) for user, each in self.totals.items()}

    def check(self, user: str, rows: int, different: int, highest: int, total: int) -> None:
        """Check what is seen of a user at one moment: rows, different numbers, the highest number, the sum of totals."""
        assert rows == different == highest, f"{user}: {rows} rows with {different} numbers up to {highest}"
        assert total == self._sums[user][highest], f"{user}: wrong totals among the first {highest}"


class Reader:
    """Looks again and again, in a thread, until it is stopped; what was wrong is raised then."""

    def __init__(self, look: Callable[[], None], away: tuple[type[Exception], ...]) -> None:
        self._look, self._away = look, away
        self.looks = 0
        self._wrong: Exception | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader")
        self._thread.start()

    def _run(self) -> None:
        while self._wrong is None and not self._stopped.wait(_PAUSE):
            try:
                self._look()
                self.looks += 1
            except self._away:
                continue
            except Exception as error:
                self._wrong = error

    def check(self) -> None:
        """Raise what was wrong."""
        if self._wrong is not None:
            raise self._wrong

    def stop(self) -> None:
        """Stop; raise what was wrong, also if the reader never saw anything."""
        self._stopped.set()
        self._thread.join()
        self.check()
        assert self.looks > 0


def topic_reader(brokers: str, topic: str, partitions: int, expected: Expected) -> Reader:
    """Read a topic of committed records: each user's come one after the other."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": brokers, "group.id": "watching", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 0, "reconnect.backoff.max.ms": 500})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    seen = dict.fromkeys(expected.totals, 0)

    def look() -> None:
        for message in consumer.consume(10_000, 0.5):
            if message.error() is None:
                row = json.loads(message.value())
                user, number = row["user"], row["n"]
                assert number == seen[user] + 1, f"{user}: {number} came after {seen[user]}"
                assert row["total"] == expected.totals[user][number - 1]
                seen[user] = number

    return Reader(look, ())


def table_reader(query: Callable[[str], list[tuple]], expected: Expected) -> Reader:
    """Read a table of PostgreSQL."""
    import psycopg

    def look() -> None:
        for row in query(
            'SELECT "user", count(*), count(DISTINCT n), max(n), sum(total)::bigint FROM numbered GROUP BY "user"'
        ):
            expected.check(*row)

    # The sink makes the table, with its first batch.
    return Reader(look, (psycopg.OperationalError, psycopg.errors.UndefinedTable))


def delta_reader(read: Callable[[], pa.Table], expected: Expected) -> Reader:
    """Read a Delta table, each version as a whole."""
    return Reader(lambda: check_numbered(read(), expected), _away())


def lakes_reader(
    tables: Iterable[Callable[[], pa.Table]], merged: Callable[[], pa.Table], expected: Expected
) -> Reader:
    """Read tables of numbered records, and the table of each user's newest one, each version as a whole."""
    newest: dict[str, int] = {}

    def look() -> None:
        for read in tables:
            check_numbered(read(), expected)
        current = merged().select(["user", "n", "total"]).to_pylist()
        assert len({row["user"] for row in current}) == len(current), "a user has two rows"
        for row in current:
            user, number = row["user"], row["n"]
            assert number >= newest.get(user, 1), f"{user}: {number} came after {newest[user]}"
            assert row["total"] == expected.totals[user][number - 1], f"{user}: wrong total at {number}"
            newest[user] = number

    return Reader(look, _away())


def check_numbered(table: pa.Table, expected: Expected) -> None:
    """Check all that a table of numbered records has at one moment."""
    wanted = [("n", "count"), ("n", "count_distinct"), ("n", "max"), ("total", "sum")]
    found = table.group_by("user").aggregate(wanted).to_pydict()
    names = ("user", "n_count", "n_count_distinct", "n_max", "total_sum")
    for row in zip(*(found[name] for name in names), strict=True):
        expected.check(*row)


def _away() -> tuple[type[Exception], ...]:
    """Return the errors of a store or catalog that is away, or of a table that the first batch has not yet made."""
    from deltalake.exceptions import DeltaError
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, RESTError

    return (OSError, DeltaError, RESTError, NoSuchTableError, NoSuchNamespaceError)
