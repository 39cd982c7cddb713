"""The soak's checker agrees with the program, and finds rows that are missing, too many, or saw an older cell."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from soak import program
from soak.checker import differences, expected
from soak.traffic import BEGIN
from tidewheel.testing import run_in_memory

SECOND = 10**9
PAYMENTS = [{"id": n, "user": f"u{n % 3}", "amount": n - 20, "at": BEGIN + n * SECOND} for n in range(40)]
OFFERS = [{"of": n, "user": f"u{n % 3}", "at": BEGIN + n * SECOND + SECOND // 2 * (n % 9) + 1} for n in range(0, 40, 2)]


def _messages(contents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"data": msgspec.json.encode(content)} for content in contents]


@pytest.fixture(scope="module")
def found() -> dict[str, list[dict[str, Any]]]:
    """Run the program without servers; return what its sinks got."""
    settings = {"name": "soak", "state": "memory:soak-checker", "nats": "nats://127.0.0.1:4222", "out": "/nowhere"}
    offers = sorted(OFFERS, key=lambda offer: offer["at"])
    ran = run_in_memory(
        program.build(settings), {"payments": _messages(PAYMENTS), "offers": _messages(offers)}, flush=True
    )
    assert not ran.outputs["payments-late"] + ran.outputs["offers-late"]
    return {**ran.outputs, "unanswered": ran.outputs["unanswered-out"]}


def _wrong(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    return [name for name, texts in differences(expected(PAYMENTS, OFFERS), found).items() if texts]


def test_the_program_passes_the_checker(found):
    assert all(found[name] for name in ("numbered", "windows", "pairs", "unanswered"))
    assert _wrong(found) == []


@pytest.mark.parametrize("sink", ["numbered", "windows", "pairs", "unanswered"])
def test_a_row_that_is_missing_or_there_twice_is_found(found, sink):
    assert sink in _wrong({**found, sink: found[sink][1:]})
    assert sink in _wrong({**found, sink: [*found[sink], found[sink][0]]})


def test_a_record_that_saw_an_older_cell_is_found(found):
    newer = [{**row, "threshold": 5 if row["n"] == 1 else 4} for row in found["numbered"]]
    assert _wrong({**found, "numbered": newer}) == ["thresholds"]
