"""Joins against a model that is given the same batch boundaries: any input, parallelism and kills."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings

from support.time_model import driven, modelled, scripts
from tidewheel import tumbling
from tidewheel._state import time_order

SOURCES = ("left", "right")


@pytest.fixture(autouse=True, scope="module", params=[1, time_order.SEGMENT_ENTRIES])
def segment_entries(request) -> Iterator[None]:
    """Join with state in segments, and whole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_order, "SEGMENT_ENTRIES", request.param)
        yield


Pair = tuple[int | None, int | None]


def numbers(outputs: list[list[dict[str, Any]]]) -> list[Pair]:
    def number(side):
        return None if side is None else side["number"]

    return sorted(((number(r["left"]), number(r["right"])) for batch in outputs for r in batch), key=repr)


def outer(how: str, pairs: list[Pair], lefts: list[Any], rights: list[Any]) -> list[Pair]:
    """Add what found no partner, as the kind of join asks."""
    met_left, met_right = {left for left, _ in pairs}, {right for _, right in pairs}
    if how in ("left", "full"):
        pairs = pairs + [(event["number"], None) for event in lefts if event["number"] not in met_left]
    if how in ("right", "full"):
        pairs = pairs + [(None, event["number"]) for event in rights if event["number"] not in met_right]
    return sorted(pairs, key=repr)


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@settings(max_examples=20, deadline=None)
@given(script=scripts(SOURCES))
def test_interval_join(how, script):
    model = modelled(script)
    lefts, rights = model.events("left"), model.events("right")
    pairs = [
        (left["number"], right["number"])
        for left in lefts
        for right in rights
        if left["key"] == right["key"] and left["time"] - 4 <= right["time"] <= left["time"] + 9
    ]
    outputs, _ = driven(
        script,
        lambda s, _, out: s[0].interval_join("join", s[1], before="4 ns", after="9 ns", how=how).sink("out", out),
    )
    assert numbers(outputs) == outer(how, pairs, lefts, rights)


@pytest.mark.parametrize("how", ["inner", "full"])
@settings(max_examples=20, deadline=None)
@given(script=scripts(SOURCES))
def test_window_join(how, script):
    model = modelled(script)
    lefts, rights = model.events("left"), model.events("right")
    pairs = [
        (left["number"], right["number"])
        for left in lefts
        for right in rights
        if left["key"] == right["key"] and left["time"] // 10 == right["time"] // 10
    ]
    outputs, _ = driven(
        script, lambda s, _, out: s[0].window_join("join", s[1], tumbling("10 ns"), how=how).sink("out", out)
    )
    assert numbers(outputs) == outer(how, pairs, lefts, rights)


@pytest.mark.parametrize("tolerance", [None, 6])
@settings(max_examples=25, deadline=None)
@given(script=scripts(SOURCES))
def test_as_of_join(tolerance, script):
    model = modelled(script)
    pairs: list[Pair] = []
    for left in model.events("left"):
        known = [
            right
            for right in model.events("right")
            if right["key"] == left["key"]
            and right["time"] <= left["time"]
            and (tolerance is None or left["time"] - right["time"] <= tolerance)
        ]
        # Of those with the same time the one that came last.
        last = max(known, key=lambda right: (right["time"], right["number"]), default=None)
        pairs.append((left["number"], None if last is None else last["number"]))
    limit = tolerance and f"{tolerance} ns"
    outputs, _ = driven(script, lambda s, _, out: s[0].as_of_join("join", s[1], tolerance=limit).sink("out", out))
    assert numbers(outputs) == sorted(pairs, key=repr)
