"""A wrong declaration of a cell is refused; a cell without a value is named where None causes an error."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tidewheel import Job, sinks, sources
from tidewheel.errors import GraphError, StepError
from tidewheel.testing import CELL, run_in_memory


@dataclass
class Limits:
    low: int


@pytest.mark.parametrize(
    ("declared", "default"),
    [(float, "high"), (int, 1.5), (dict[str, float], {"EUR": "1"}), (list[str], "a"), (Limits, {"low": "x"})],
)
def test_a_default_of_another_type_is_refused(declared, default):
    with pytest.raises(GraphError, match=r"cell 't': default=.* is not of its declared type, .*: Expected"):
        Job("live").cell("t", declared, default=default)


@pytest.mark.parametrize(
    ("declared", "default", "seen"),
    [
        (float, 1, 1.0),
        (float | None, None, None),
        (dict[int, str], {1: "a"}, {1: "a"}),
        (Limits, Limits(1), Limits(1)),
        (Limits, {"low": 1}, Limits(1)),
    ],
)
def test_a_default_is_as_a_value_that_is_read(declared, default, seen):
    assert Job("live").cell("t", declared, default=default).default == seen


def test_reading_a_cell_outside_of_a_job_raises():
    with pytest.raises(RuntimeError, match=r"StoredJob\(JOB, state=…\)\.cell\('t'\)"):
        _ = Job("live").cell("t", float, default=1.0).value


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (0.5, r"job\.cell\('t', float, default=0\.5\)"),
        ("high", r"job\.cell\('t', str, default='high'\)"),
        ([1], r"job\.cell\('t', list, default=\[1\]\)"),
        (Limits(1), r"job\.cell\('t', Limits, default=Limits\(low=1\)\)"),
        (None, r"job\.cell\('t', float, default=0\.5\)"),
        (print, r"job\.cell\('t', float, default=0\.5\)"),
    ],
)
def test_a_value_in_place_of_the_type_is_refused_with_what_to_write(given, meant):
    with pytest.raises(
        GraphError, match=rf"cell 't': its second argument is the type of its values, not .*\. Write {meant}"
    ):
        Job("live").cell("t", given)


def test_a_cell_has_no_value_outside_of_functions_after_a_run():
    job = Job("over")
    limit = job.cell("limit", int, default=1)
    job.source("in", sources.iterable([1, 2])).filter("large", lambda n: n > limit.value).sink("out", sinks.collect())
    assert run_in_memory(job).outputs["out"] == [{"value": 2}]
    with pytest.raises(RuntimeError, match="the cell 'limit' has a value inside the functions of a running job only"):
        limit.value  # noqa: B018


def test_a_cell_without_a_type_is_refused_with_what_to_write():
    with pytest.raises(
        GraphError, match=r"cell 't': its second argument is the type .* Write job\.cell\('t', float, default=0\.5"
    ):
        Job("live").cell("t", default=0.5)


def test_a_default_without_its_name_is_refused_with_what_to_write():
    with pytest.raises(GraphError, match=r"cell 't': its default is given by name: default=0\.5"):
        Job("live").cell("t", float, 0.5)


def with_empty_cell(*, reads: bool = True, dead: bool = False) -> Job:
    job = Job("live")
    limit = job.cell("limit", float)
    if dead:
        job.dead_letter("dead", sinks.collect())
    numbers = job.source("in", sources.iterable([1]), type=int)
    numbers.map("over", lambda n: n > (limit.value if reads else None)).sink("out", sinks.collect())
    return job


EMPTY = (
    r"If that None is the cell 'limit', which is not set and has no default: declare one with "
    r"job\.cell\('limit', float, default=…\), or set it with tidewheel cells set limit VALUE --job JOB"
)


def test_a_cell_without_a_value_is_named_where_none_leads_to_an_error():
    with pytest.raises(StepError, match=rf"step 'over', record 1: TypeError: .*NoneType.*\. {EMPTY}"):
        run_in_memory(with_empty_cell())


@dataclass
class Later:
    at: Nowhere  # noqa: F821


def test_a_type_that_cannot_be_stored_is_refused_with_the_reason():
    with pytest.raises(
        GraphError, match="cell 'c': values of its type Later cannot be stored: name 'Nowhere' is not defined"
    ):
        Job("types").cell("c", Later)


def test_a_dead_letter_names_the_cell_without_a_value():
    [letter] = run_in_memory(with_empty_cell(dead=True)).outputs["dead"]
    assert "If that None is the cell 'limit'" in letter["error"]


def test_an_error_on_none_without_a_cell_is_shown_unchanged():
    with pytest.raises(StepError) as caught:
        run_in_memory(with_empty_cell(reads=False))
    assert "The cell" not in str(caught.value)


def test_a_cell_without_a_default_may_be_read_while_it_is_empty():
    job = Job("live")
    limit = job.cell("limit", int)
    numbers = job.source("in", sources.iterable([]), type=int)
    numbers.filter("over", lambda n: limit.value is None or n > limit.value).sink("out", sinks.collect())
    outputs = run_in_memory(job, [{"in": [1]}, CELL("limit", 1), {"in": [1, 2]}]).outputs
    assert outputs["out"] == [{"value": 1}, {"value": 2}]
