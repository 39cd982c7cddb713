"""What the sinks must hold, counted from the messages of the stream alone. Nothing here knows Tidewheel."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from soak.program import JOIN_NS, PATIENCE_NS, WINDOW_NS

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Expected:
    """The rows of each sink, with how often each must be there. Thresholds are not among them: see `check_thresholds`."""

    rows: Mapping[str, Counter[Row]]
    payments: int
    offers: int


def expected(payments: Iterable[Mapping[str, Any]], offers: Iterable[Mapping[str, Any]]) -> Expected:
    """Count the rows for all messages, in the order of the stream."""
    payments, offers = list(payments), list(offers)
    n: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    rows: dict[str, Counter[Row]] = {name: Counter() for name in ("numbered", "windows", "pairs", "unanswered")}
    counts: Counter[Row] = Counter()
    sums: Counter[Row] = Counter()
    of_user: dict[str, list[tuple[int, int]]] = defaultdict(list)
    answered: dict[int, int] = {}
    for offer in offers:
        of_user[offer["user"]].append((offer["at"], offer["of"]))
        answered[offer["of"]] = offer["at"]
    for payment in payments:
        user, at = payment["user"], payment["at"]
        n[user] += 1
        totals[user] += payment["amount"]
        rows["numbered"][user, n[user], totals[user]] += 1
        counts[user, at // WINDOW_NS * WINDOW_NS] += 1
        sums[user, at // WINDOW_NS * WINDOW_NS] += payment["amount"]
        times = of_user[user]
        near = times[bisect_left(times, (at - JOIN_NS, -1)) : bisect_right(times, (at + JOIN_NS, 2**62))]
        rows["pairs"].update((user, payment["id"], of) for _, of in near or [(0, -1)])
        if answered.get(payment["id"], 2**62) > at + PATIENCE_NS:
            rows["unanswered"][payment["id"],] += 1
    rows["windows"].update((*window, counts[window], sums[window]) for window in counts)
    return Expected(rows, len(payments), len(offers))


COLUMNS = {
    "numbered": ("user", "n", "total"),
    "windows": ("user", "start", "n", "total"),
    "pairs": ("user", "payment", "offer"),
    "unanswered": ("payment",),
}


def differences(wanted: Expected, found: Mapping[str, Iterable[Mapping[str, Any]]]) -> dict[str, list[str]]:
    """Return for each sink the rows that are missing and those that are too many."""
    wrong: dict[str, list[str]] = {}
    for name, columns in COLUMNS.items():
        there = Counter(tuple(row[column] for column in columns) for row in found[name])
        lacking, extra = wanted.rows[name] - there, there - wanted.rows[name]
        wrong[name] = [f"missing {row} x{n}" for row, n in lacking.items()] + [
            f"extra {row} x{n}" for row, n in extra.items()
        ]
    wrong["thresholds"] = list(falling_thresholds(found["numbered"]))
    return wrong


def falling_thresholds(rows: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Yield each record of a user that saw an older value of the cell than the user's record before it: values only rise."""
    last: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: (row["user"], row["n"])):
        if row["threshold"] < last.get(row["user"], 0):
            yield f"{row} after {last[row['user']]}"
        last[row["user"]] = row["threshold"]
