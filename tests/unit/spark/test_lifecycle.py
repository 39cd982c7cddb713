"""The phases of a run's start, and the request to stop."""

from __future__ import annotations

import pytest

from tidewheel._spark.lifecycle import Lifecycle, Stopped


class StandIn:
    """In place of a run: whether it was told to stop is known."""

    def __init__(self, told: bool) -> None:
        self._told = told

    def stop_ordered(self) -> bool:
        return self._told

    def enter(self, phase: str | None) -> None:
        pass


def test_each_phase_is_shown_once():
    told: list[str | None] = []
    life = Lifecycle(StandIn(told=False), told.append)
    for phase in ("checking", "Spark", "Spark", "first batch", None, None):
        life.enter(phase)
    assert told == ["checking", "Spark", "first batch", None]


def test_a_start_stopped_from_another_process_ends():
    life = Lifecycle(StandIn(told=True))
    with pytest.raises(Stopped):
        life.enter("Spark")
    assert life.stopping
