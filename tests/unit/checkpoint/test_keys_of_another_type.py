"""A look-up with a key of another type than a step's keys is refused: it would find nothing and look like a missing key."""

from __future__ import annotations

import enum
import itertools

import pytest

from tidewheel import Found, Job, StoredJob
from tidewheel._checkpoint.tools.key_check import either
from tidewheel.errors import StateError, StepError, WrongKeyType
from tidewheel.sinks import discard
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun

_fresh = itertools.count()


def counted(keyed, name):
    keyed.stateful_map(name, lambda key, record, n: (n, n + 1), default=0).sink(f"{name}-out", discard(), key=False)


def numbers(url: str, *, key=lambda record: record["n"], by: str = "by", agg: str = "agg") -> Job:
    job = Job("numbers", state=url, n_shards=4)
    counted(job.source("in", iterable([]), type=dict).key_by(by, key), agg)
    if agg == "renamed":
        job.alias("renamed", "agg")
    return job


def fresh() -> str:
    return f"memory:kinds-{next(_fresh)}"


def stored(job: Job, *records) -> StoredJob:
    with MemoryRun(job) as run:
        run.batch({"in": list(records)})
    return StoredJob(job.name, state=job.state)


def test_a_number_given_as_text_is_refused_with_what_to_write():
    found = stored(numbers(fresh()), {"n": 3})
    with pytest.raises(StateError, match=r"^keys of 'agg' are int, not str: give 3, not '3'"):
        found.get("agg", "3")
    with pytest.raises(StateError, match=r"^keys of 'agg' are int, not str; the key given is 'ada'"):
        found.get("agg", "ada")
    assert found.get("agg", 4).found is False


def test_text_given_as_a_number_is_refused_with_how_a_shell_writes_it():
    found = stored(numbers(fresh(), key=lambda record: str(record["n"])), {"n": 3})
    with pytest.raises(StateError, match=r"are str, not int: give '3', not 3. .*'\"3\"' in a shell"):
        found.get("agg", 3)


def test_parts_of_tuples_count_too():
    found = stored(numbers(fresh(), key=lambda record: ("a", record["n"])), {"n": 3})
    with pytest.raises(StateError, match=r"the numbers at place 1 of the keys of 'agg' are int, not float"):
        found.get("agg", ("a", 3.0))
    with pytest.raises(StateError, match="keys of 'agg' are tuple, not str"):
        found.get("agg", "a")
    assert not found.get("agg", ("a", None)).found


def test_a_query_of_the_program_is_refused_as_well():
    job = numbers(fresh())
    stored(job, {"n": 3})
    with pytest.raises(StateError, match="keys of 'agg' are int, not str"):
        job.query("agg", "3")


def test_each_operator_has_the_type_of_its_own_key_by():
    job = Job("both", state=fresh(), n_shards=4)
    records = job.source("in", iterable([]), type=dict)
    counted(records.key_by("by-n", lambda record: record["n"]), "numbers")
    counted(records.key_by("by-user", lambda record: record["user"]), "users")
    found = stored(job, {"n": 3, "user": "ada"})
    with pytest.raises(StateError, match="keys of 'numbers' are int, not str"):
        found.get("numbers", "3")
    with pytest.raises(StateError, match="keys of 'users' are str, not int"):
        found.get("users", 3)


def test_keys_of_two_types_are_both_looked_up():
    job = Job("mixed", state=fresh(), n_shards=4)
    records = job.source("in", iterable([]), type=dict)
    by_n, by_user = (records.key_by(f"by-{name}", lambda record, name=name: record[name]) for name in ("n", "user"))
    counted(by_n.union("all", by_user), "agg")
    found = stored(job, {"n": 3, "user": "ada"})
    assert found.get("agg", 3).found
    assert found.get("agg", "ada").found
    assert not found.get("agg", "3").found
    assert not found.get("agg", 4).found


def test_a_subclass_of_text_is_text():
    class Color(enum.StrEnum):
        RED = "red"

    found = stored(numbers(fresh(), key=lambda record: record["n"]), {"n": "blue"})
    assert not found.get("agg", Color.RED).found
    found = stored(numbers(fresh(), key=lambda record: Color(record["n"])), {"n": "red"})
    assert found.get("agg", "red").found
    assert not found.get("agg", "blue").found


def test_a_key_by_may_take_the_name_of_an_operator_that_is_gone():
    url = fresh()
    stored(numbers(url), {"n": 3})
    job = Job("numbers", state=url, n_shards=4)
    counted(job.source("in", iterable([]), type=dict).key_by("agg", lambda record: str(record["n"])), "other")
    with MemoryRun(job, allow_dropped_state=["agg"]) as run:
        run.batch({"in": [{"n": 3}]})
    assert StoredJob(job.name, state=url).get("other", "3").found


def test_a_key_by_keeps_its_type():
    url = fresh()
    stored(numbers(url), {"n": 3})
    with pytest.raises(StepError, match=r"'by'.*: all keys must be of one type.* that keep state by its keys: 'agg'$"):
        stored(numbers(url, key=lambda record: str(record["n"])), {"n": 3})


def as_text(record):
    return str(record["n"])


@pytest.mark.parametrize("agg", ["agg", "renamed"])
def test_state_keeps_its_key_type_under_new_names(agg):
    url = fresh()
    stored(numbers(url), {"n": 3})
    # A batch without keys says nothing, and nothing is forgotten by it.
    stored(numbers(url, key=as_text, by="by-text", agg=agg))
    with pytest.raises(StepError, match=f"'{agg}': the keys in its stored .* int, .* 'by-text' gives are of type str"):
        stored(numbers(url, key=as_text, by="by-text", agg=agg), {"n": 3})
    found = stored(numbers(url, by="by-number", agg=agg), {"n": 4})
    assert found.get(agg, 3).found
    assert found.get(agg, 4).found


def test_the_numbers_in_tuple_keys_of_stored_state_keep_their_type():
    url = fresh()
    stored(numbers(url, key=lambda record: ("a", record["n"])), {"n": 3})
    with pytest.raises(
        StepError, match="'agg': the numbers at place 1 of its tuple keys in its stored state are of type int"
    ):
        stored(numbers(url, key=lambda record: ("a", float(record["n"])), by="by-float"), {"n": 3})


def test_a_renamed_key_by_and_state_accept_keys_of_another_type():
    url = fresh()
    stored(numbers(url), {"n": 3})
    job = numbers(url, key=as_text, by="by-text", agg="texts")
    with MemoryRun(job, allow_dropped_state=["agg"]) as run:
        run.batch({"in": [{"n": 3}]})
    assert StoredJob(job.name, state=url).get("texts", "3").found


def test_a_text_lookup_ignores_missing_key_types_and_no_other_failure():
    def get(key, failure):
        if isinstance(key, int):
            raise failure
        return Found("agg", key, False, None, 1)

    assert either(lambda key: get(key, WrongKeyType("text is meant")), "7").key == "7"
    with pytest.raises(StateError, match="a file is damaged"):
        either(lambda key: get(key, StateError("a file is damaged")), "7")
