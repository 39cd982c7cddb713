"""Figures over several commits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidewheel._observe.backlog import Backlogs, backlog
from tidewheel._observe.records import Behind, CommitRecord, StepRecord, Stored
from tidewheel._ui.views.figures import at_work, bar, charts, hot_keys, is_quiet, rate, recent, step_figures

SECOND = 10**9


def commits(*gaps, rows=10, **figures):
    at = 1_000 * SECOND
    records = []
    for sequence, gap in enumerate(gaps, 1):
        at += int(gap * SECOND)
        records.append(CommitRecord(sequence, at, rows=rows, seconds=0.5, **figures))
    return records


def test_the_rate_covers_the_last_minute():
    slow, fast = commits(*[1.0] * 100, rows=1), commits(*[1.0] * 200, rows=100)
    records = slow + fast[100:]
    assert len(recent(records)) == 61
    assert rate(records) == 61 * 100 / 60.5


def test_rare_commits_still_have_a_rate():
    assert rate(commits(600, 600)) == 20 / 600.5
    assert rate([]) is None


def test_the_busiest_operator_is_the_slowest_and_state_is_the_newest_known():
    graph = [StepRecord("a", "map", 0), StepRecord("b", "stateful_map", 1, True, (("a", 0),))]
    records = commits(1, 1, busy={"a": 0.1, "b": 0.3}, rows_in={"a": 10, "b": 10}, late={"b": 2})
    records[0] = CommitRecord(1, records[0].at, rows=10, seconds=0.5, stored={"b": Stored(7, 70)}, busy={"a": 0.1})
    first, second = step_figures(graph, records, records)
    assert (first["slowest"], second["slowest"]) == (False, True)
    assert (second["keys"], second["bytes"], second["late"], second["inputs"]) == (7, 70, 2, [["a", 0]])
    assert first["keys"] is None


def test_nothing_is_the_slowest_where_nothing_was_busy():
    records = commits(1)
    assert not step_figures([StepRecord("a", "map", 0)], records, records)[0]["slowest"]


def test_a_bar_is_divided_into_its_phases():
    parts = bar(CommitRecord(7, SECOND, seconds=1.0, phases={"read": 0.2, "tasks": 0.5}))["phases"]
    assert parts == {
        "offsets": 0.0,
        "read": 0.2,
        "tasks": 0.5,
        "commit": 0.0,
        "publish": 0.0,
        "other": 0.30000000000000004,
    }


@given(gaps=st.lists(st.floats(0.001, 1000), max_size=60), points=st.integers(1, 20))
def test_charts_stay_small_and_lose_no_row(gaps, points):
    records = commits(*gaps)
    columns = charts(records, points)
    lengths = {len(column) for column in columns.values()}
    assert len(lengths) == 1
    assert lengths.pop() <= max(points, 0) or len(records) <= points
    assert sum(columns["commits"]) == len(records)
    assert columns["at"] == sorted(columns["at"])


def test_the_backlog_counts_rows_and_files_over_all_sources():
    def told(**behind):
        return backlog(CommitRecord(1, 1, behind=behind))

    assert told() == (None, None, None)
    assert told(a={"0": Behind(2, 1.0), "1": Behind(3, 4.0)}) == (5, None, 4.0)
    assert told(b={"folder": Behind(0, 9.0, 2)}) == (None, 2, 9.0)
    assert told(a={"0": Behind(2, 1.0)}, b={"folder": Behind(0, 9.0, 2)}) == (2, 2, 9.0)


def test_a_backlog_is_never_taken_from_another_record():
    backlogs = Backlogs()
    for rows in range(1000):
        # Of records that are let go, ids come again.
        assert backlogs(CommitRecord(1, 1, behind={"a": {"0": Behind(rows)}})).rows == rows
    held = CommitRecord(1, 1, behind={"a": {"0": Behind(5)}})
    assert backlogs(held) is backlogs(held)


def test_charts_show_the_most_that_waited():
    second = 10**9
    records = [
        CommitRecord(at, at * second, behind={"a": {"0": Behind(rows)}, "b": {"f": Behind(0, 0.0, files)}})
        for at, rows, files in [(1, 5, 1), (2, 9, 0), (3, 4, 2)]
    ]
    chart = charts(records, 1)
    assert (chart["rows_behind"], chart["files_behind"]) == ([9], [2])


def test_a_job_that_had_no_rows_for_a_while_is_quiet_and_its_operators_rest():
    records = commits(1, 1, busy={"a": 0.5}, rows_in={"a": 10}, stored={"a": Stored(7, 70)})
    newest = records[-1].at / 1e9
    assert not is_quiet(records, newest + 5)
    assert is_quiet(records, newest + 61)
    records.append(CommitRecord(3, records[-1].at + 60 * SECOND))
    assert is_quiet(records, newest + 61), "a commit without rows is no work"
    (resting,) = step_figures([StepRecord("a", "map", 0)], records, [])
    assert (resting["in_rate"], resting["busy"], resting["slowest"], resting["keys"]) == (0.0, 0.0, False, 7)


def test_an_operator_that_shows_as_idle_is_not_the_slowest():
    records = commits(1, 1, busy={"a": 0.001})
    assert not step_figures([StepRecord("a", "map", 0)], records, records)[0]["slowest"]


def test_a_job_worked_up_to_its_last_rows():
    records = commits(1, 1, busy={"a": 0.5}, rows_in={"a": 10})
    ended = [*records, CommitRecord(3, records[-1].at + 600 * SECOND, kind="stop")]
    assert list(at_work(ended)) == records
    assert not at_work(ended[-1:])
    (worked,) = step_figures([StepRecord("a", "map", 0)], ended, recent(at_work(ended)))
    assert worked["busy"] > 0.3
    assert worked["slowest"]


def test_a_key_is_hot_that_has_a_large_share_of_all_the_last_commits():
    often = CommitRecord(1, SECOND, rows=100, rows_out={"by": 100}, hot={"by": {"'u7'": 0.6, "'u8'": 0.15}})
    rarely = CommitRecord(2, 2 * SECOND, rows=100, rows_out={"by": 100})
    assert hot_keys([often, rarely]) == [{"step": "by", "key": "'u7'", "share": 0.3}]
    assert hot_keys([]) == []


def test_the_share_of_a_key_covers_all_batches_with_shares():
    one = CommitRecord(
        1, SECOND, rows=100, rows_out={"by": 100}, hot={"by": {"a": 0.3, "b": 0.26, "c": 0.24, "d": 0.2}}
    )
    two = CommitRecord(
        2, SECOND, rows=100, rows_out={"by": 100}, hot={"by": {"d": 0.28, "c": 0.27, "a": 0.25, "b": 0.2}}
    )
    small = CommitRecord(3, SECOND, rows=50, rows_out={"by": 50})
    assert [(each["key"], round(each["share"], 3)) for each in hot_keys([one, two, small])] == [
        ("a", 0.275),
        ("c", 0.255),
        ("d", 0.24),
    ]
