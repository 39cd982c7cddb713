"""What the sources of a changed program continue: by name, never by position."""

from __future__ import annotations

import pytest

from tidewheel._checkpoint.manifest import SparkLog, SparkSource
from tidewheel._spark.source_lines import CLOCK, SourceLine, continued, dropped_sources, offsets_by_name, recorded_kinds
from tidewheel.errors import StateError


def program(*sources: str | tuple[str, str]) -> list[SourceLine]:
    """The lines of sources, each a name, or a name and a kind."""
    pairs = [(each, "files") if isinstance(each, str) else each for each in sources]
    return [SourceLine(name, kind, folder) for folder, (name, kind) in enumerate(pairs)]


def recorded(lines: list[SourceLine]) -> SparkLog:
    first = continued(None, lines, {})
    return SparkLog("q", sources=first.sources, logs=first.logs)


def test_swapped_sources_keep_their_offsets_and_logs():
    found = continued(recorded(program("a", "b")), program("b", "a"), {})
    assert found.positions == (1, 0)
    assert found.folders() == {1: 0, 0: 1}


def test_a_source_declared_above_another_is_new_and_the_other_goes_on():
    found = continued(recorded(program("b")), program("a", "b"), {})
    assert found.positions == (None, 0)
    assert [source.log for source in found.sources] == [1, 0]


def test_a_source_added_to_a_job_with_a_clock_does_not_take_the_clock_for_its_own():
    found = continued(recorded(program("a", (CLOCK, "ticks"))), program("a", "b", (CLOCK, "ticks")), {})
    assert found.positions == (0, None, 1)


def test_a_clock_comes_and_goes_without_a_word():
    with_clock = program("a", (CLOCK, "ticks"))
    assert continued(recorded(program("a")), with_clock, {}).positions == (0, None)
    assert continued(recorded(with_clock), program("a"), {}).positions == (0,)


def test_a_source_that_is_gone_is_refused_unless_it_is_said():
    log = recorded(program("a", "b"))
    with pytest.raises(
        StateError,
        match=r"has read the source 'a', which the program lacks \(it has 'b', 'c'\).*--allow-dropped-source a \(.*\['a'\]",
    ):
        continued(log, program("b", "c"), {})
    assert continued(log, program("b", "c"), {}, allow_dropped_source=["a"]).positions == (1, None)


def test_only_the_sources_that_are_named_may_be_gone():
    log = recorded(program("a", "b", (CLOCK, "ticks")))
    with pytest.raises(StateError, match=r"has read the source 'b', which.*--allow-dropped-source b "):
        continued(log, program("c"), {}, ["a"])
    with pytest.raises(StateError, match=r"has read the source 'b', .*Nothing is stored under 'bb', which is to be"):
        continued(log, program("a"), {}, ["bb"])
    assert dropped_sources(log, program("a"), {}) == ["b"]


def test_a_source_that_the_program_has_cannot_be_let_go():
    log = recorded(program("a", "b"))
    with pytest.raises(StateError, match=r"--allow-dropped-source a: the program has that source"):
        continued(log, program("a", "b"), {}, ["a"])
    with pytest.raises(StateError, match=r"--allow-dropped-source b: 'new' takes over its offsets"):
        continued(log, program("a", "new"), {"new": ("b",)}, ["b"])
    with pytest.raises(StateError, match=r"source 'a' read files and now reads rate"):
        continued(log, program(("a", "rate"), "b"), {}, ["a"])


def test_a_lost_source_gets_its_alias_where_one_new_source_is_of_its_kind():
    log = recorded(program("a", ("b", "rate")))
    with pytest.raises(StateError, match=r"write job\.alias\('c', 'a'\), job\.alias\('its new name', 'b'\)"):
        continued(log, program("c", ("d", "kafka")), {})


def test_a_source_that_comes_back_is_new_and_gets_a_log_of_its_own():
    log = recorded(program("a", "b"))
    without = continued(log, program("b"), {}, allow_dropped_source=["a"])
    back = continued(SparkLog("q", sources=without.sources, logs=without.logs), program("a", "b"), {})
    assert back.positions == (None, 0)
    assert [source.log for source in back.sources] == [2, 1]


def test_a_renamed_source_goes_on_under_its_alias():
    found = continued(recorded(program("a", "b")), program("b", "new"), {"new": ("a",)})
    assert found.positions == (1, 0)
    assert found.sources == (SparkSource("b", "files", 1), SparkSource("new", "files", 0))


def test_a_source_learns_the_kind_that_was_recorded_for_it_or_for_its_alias():
    log = recorded(program(("a", "kafka"), ("b", "files")))
    assert recorded_kinds(log, ["new", "b", "other"], {"new": ("a",)}) == {"new": "kafka", "b": "files"}
    assert recorded_kinds(None, ["a"], {}) == {}


def test_another_kind_of_source_under_the_same_name_is_refused_with_both_kinds():
    log = recorded(program(("a", "files")))
    with pytest.raises(StateError, match=r"source 'a' read files and now reads kafka-log: .*--allow-dropped-source a "):
        continued(log, program(("a", "kafka-log")), {})
    with pytest.raises(StateError, match=r"source 'b' read files and now reads rate: .*--allow-dropped-source a "):
        continued(log, program(("b", "rate")), {"b": ("a",)})


def test_a_source_of_several_streams_continues_all_of_them_in_their_order():
    log = recorded(program("x", ("a", "files"), ("a", "rate")))
    assert continued(log, program(("a", "files"), ("a", "rate"), "x"), {}).positions == (1, 2, 0)
    with pytest.raises(StateError, match=r"source 'a' read 2 streams \(files, rate\) and now reads files"):
        continued(log, program("x", "a"), {})


def test_a_stream_that_is_read_twice_has_two_lines_and_one_log():
    twice = [SourceLine("a", "files", 0), SourceLine("b", "files", 0), SourceLine("c", "files", 1)]
    found = continued(recorded(twice), [SourceLine("c", "files", 0), *[SourceLine(n, "files", 1) for n in "ba"]], {})
    assert found.positions == (2, 1, 0)
    assert found.folders() == {1: 0, 0: 1}


@pytest.mark.parametrize("shared", [True, False])
def test_streams_that_are_shared_otherwise_than_before_are_refused(shared):
    apart, together = program("a", "b"), [SourceLine("a", "files", 0), SourceLine("b", "files", 0)]
    before, after = (together, apart) if shared else (apart, together)
    with pytest.raises(StateError, match="source 'b' shares its stream with another source otherwise than before"):
        continued(recorded(before), after, {})


def test_offsets_are_told_by_name_and_the_clock_is_none_of_them():
    lines = program("b", ("a", "files"), ("a", "rate"), (CLOCK, "ticks"))
    assert offsets_by_name(["7", "8", "-", "9"], lines) == {"b": "7", "a": "8\n-"}
