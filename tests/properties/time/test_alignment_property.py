"""Sources that wait for one another in event time, against a plain model of a run with a backlog."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidewheel._time.alignment import held_back, leads, source_clocks
from tidewheel._time.frontier import Asked, Frontier, Input, advanced

SPAN = 20
"""The most by which the times of one batch of a source differ."""

backlogs = st.lists(
    st.lists(st.integers(0, SPAN), max_size=12).map(lambda steps: [sum(steps[: n + 1]) for n in range(len(steps))]),
    min_size=1,
    max_size=4,
).map(lambda parts: {f"s{number}": part for number, part in enumerate(parts)})
offsets = st.lists(st.integers(0, 500), min_size=4, max_size=4)


def run(backlog: dict[str, list[int]], most: int, first: dict[str, int]):
    """Read one record of each source that is offered, batch after batch; yield what was read and the frontiers before."""
    inputs = [Input(f"clock-{name}", None) for name in backlog]
    clocked = {name: {f"clock-{name}"} for name in backlog}
    frontiers = advanced({}, inputs, [], None)
    read = dict.fromkeys(backlog, 0)
    while waiting := {name for name in backlog if read[name] < len(backlog[name])}:
        held = held_back(source_clocks(frontiers, inputs, clocked), waiting, most)
        offered = waiting - held
        yield frontiers, waiting, offered
        seen = {f"clock-{name}": first[name] + backlog[name][read[name]] for name in offered}
        frontiers = advanced(frontiers, inputs, [seen], Asked(), {f"clock-{name}" for name in held})
        for name in offered:
            read[name] += 1


@given(backlogs, st.integers(0, 100), offsets)
def test_every_batch_reads_something_and_everything_is_read(backlog, most, shifts):
    first = dict(zip(backlog, shifts, strict=False))
    batches = [offered for _, _, offered in run(backlog, most, first)]
    assert all(batches)
    assert {name: sum(name in offered for offered in batches) for name in backlog} == {
        name: len(times) for name, times in backlog.items()
    }


@given(backlogs, st.integers(0, 100), offsets)
def test_no_source_is_read_that_is_too_far_ahead_of_one_with_unread_data(backlog, most, shifts):
    first = dict(zip(backlog, shifts, strict=False))
    for frontiers, waiting, offered in run(backlog, most, first):
        times = {name: frontiers[f"clock-{name}"].time for name in backlog}
        for name in offered:
            ahead = [times[name] - times[other] for other in waiting if None not in (times[name], times[other])]
            assert max(ahead, default=0) <= most
            assert times[name] is None or None not in [times[other] for other in waiting]


frontiers = st.builds(Frontier, st.none() | st.integers(-50, 50), st.none() | st.integers(0, 30))
names = st.sampled_from(["a", "b", "c", "a/0", "a/1", "c/7"])
NAMED = [Input("a", 10), Input("b", None), Input("c", 10, advance_after=5)]
clocked = st.dictionaries(st.sampled_from(["x", "y", "z", "w"]), st.sets(st.sampled_from(["a", "b", "c"])))


@given(
    st.dictionaries(names, frontiers), clocked, st.sets(st.sampled_from(["x", "y", "z", "w", "v"])), st.integers(0, 60)
)
def test_one_source_with_new_data_is_never_held_back(frontiers, fed, waiting, most):
    held = held_back(source_clocks(frontiers, NAMED, fed), waiting, most)
    assert held <= waiting & fed.keys()
    assert not waiting or held < waiting


@given(st.dictionaries(names, frontiers), clocked, st.sets(st.sampled_from(["x", "y", "z"])), st.integers(0, 60))
def test_only_a_source_with_new_data_and_an_active_clock_holds_others_back(frontiers, fed, waiting, most):
    clocks = source_clocks(frontiers, NAMED, fed)
    holding = {by for _, by in leads(clocks, waiting).values()}
    assert holding <= waiting & {name for name, clock in clocks.items() if not clock.idle}
    rest = {name: clock for name, clock in clocks.items() if clock.idle}
    assert held_back(rest, waiting, most) == frozenset()
