"""Connections to logs that are kept between batches."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import pytest

from tidewheel._connectors import kept_logs
from tidewheel.connectors import Log


class Opened(Log):
    """A log that remembers whether it was closed."""

    made: ClassVar[list[Opened]] = []

    def __init__(self, name: str) -> None:
        self.name, self.closed = name, False
        Opened.made.append(self)

    def start(self):
        return {}

    def end(self, start):
        return {}

    def read(self, partition, first, last):
        return iter(())

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def keeping(monkeypatch):
    monkeypatch.setattr(kept_logs, "_kept", {})
    monkeypatch.setattr(kept_logs, "_keeping", True)
    monkeypatch.setattr(Opened, "made", [])


def use(name: str) -> Log:
    with kept_logs.opened(partial(Opened, name)) as log:
        return log


def test_the_next_batch_reuses_the_connection_to_its_own_log():
    first = use("a")
    assert use("b") is not first
    assert use("a") is first
    assert not first.closed


def test_after_an_error_another_one_is_opened():
    with pytest.raises(ZeroDivisionError), kept_logs.opened(partial(Opened, "a")) as log:
        raise ZeroDivisionError
    assert log.closed
    assert use("a") is not log


def test_a_connection_that_was_unused_for_long_is_opened_again(monkeypatch):
    first = use("a")
    monkeypatch.setattr(kept_logs, "_KEPT_S", -1.0)
    assert use("a") is not first
    assert first.closed


def test_a_worker_keeps_a_few_connections_and_other_processes_none(monkeypatch):
    for number in range(6):
        use(str(number))
    assert [log.closed for log in Opened.made] == [True, True, False, False, False, False]
    monkeypatch.setattr(kept_logs, "_keeping", False)
    assert use("once").closed
