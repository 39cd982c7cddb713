"""Whether a program fits the stored state of its job."""

from __future__ import annotations

import pytest

from tidewheel import Job, count
from tidewheel._checkpoint.manifest import OperatorInfo
from tidewheel._engine.compatibility import check_program
from tidewheel._engine.stored_names import idle_aliases
from tidewheel._state.layout import NUMBERS, Accumulator, StateLayout
from tidewheel.checkpoints import CheckpointId, Manifest
from tidewheel.errors import StateError
from tidewheel.sinks import discard
from tidewheel.sources import iterable
from tidewheel.testing import MemoryRun

MAP = OperatorInfo("stateful_map", "msgpack", 1)


def numbers(*folds: str) -> StateLayout:
    return StateLayout(NUMBERS, numbers=tuple(Accumulator(fold, "n") for fold in folds))


SUM = OperatorInfo("aggregate", "msgpack", 1, layout=numbers("count", "sum"))
MANIFEST = Manifest(CheckpointId("job", 3), n_shards=64, operators={"total": MAP})


def check(
    was: dict[str, OperatorInfo], now: dict[str, OperatorInfo], n_shards: int = 64, allow: tuple[str, ...] = ()
) -> None:
    check_program(Manifest(CheckpointId("job", 3), n_shards=64, operators=was), now, n_shards, allow)


def test_the_same_program_and_one_with_more_operators_fit():
    check({}, {})
    check({"a": MAP}, {"a": MAP})
    check({"a": MAP}, {"a": MAP, "b": SUM})


def test_another_number_of_shards_is_refused_with_the_right_one():
    with pytest.raises(StateError, match=r"n_shards=32, and its state was made with 64.*set n_shards=64"):
        check({}, {}, n_shards=32)


def test_an_operator_that_the_program_lacks_is_named_with_those_that_it_has():
    with pytest.raises(StateError, match=r"names the step 'a', 'b', which the program lacks \(it has 'c'\)"):
        check({"a": MAP, "b": MAP}, {"c": MAP})
    with pytest.raises(StateError, match=r"it has none with state.*--allow-dropped-state a "):
        check({"a": MAP}, {})


def test_an_alias_with_its_names_swapped_is_asked_about():
    for allow in ((), ("total",)):
        with pytest.raises(StateError, match=r"the other way round\?.*job\.alias\('sum', 'total'\)"):
            check_program(MANIFEST, {"sum": MAP}, 64, allow, {"total": ("sum",)})


def test_its_state_can_be_dropped():
    check({"a": MAP}, {"c": MAP}, allow=("a",))


def test_only_the_state_of_the_named_steps_is_dropped():
    with pytest.raises(StateError, match=r"the step 'total', which.*--allow-dropped-state total "):
        check({"last": MAP, "total": MAP}, {"sum": MAP}, allow=("last",))
    with pytest.raises(StateError, match=r"Nothing is stored under 'lst', which is to be dropped"):
        check({"last": MAP}, {}, allow=("lst",))


def test_state_of_a_step_in_the_program_cannot_be_dropped():
    with pytest.raises(StateError, match=r"--allow-dropped-state total: .*the program has"):
        check({"total": MAP}, {"total": MAP}, allow=("total",))
    with pytest.raises(StateError, match=r"--allow-dropped-state total: .*'sum' takes over"):
        check_program(MANIFEST, {"sum": MAP}, 64, ("total",), {"sum": ("total",)})


def test_dropping_state_that_is_already_gone_is_no_error():
    """A start that is repeated, by `--restarts` or a supervisor, has the same options."""
    check({"total": MAP}, {"total": MAP}, allow=("last",))


def test_each_lost_operator_gets_its_alias():
    with pytest.raises(StateError, match=r"job\.alias\('its new name', 'a'\), job\.alias\('its new name', 'b'\)"):
        check({"a": MAP, "b": MAP}, {"c": MAP, "d": MAP})
    with pytest.raises(StateError, match=r"job\.alias\('c', 'a'\), job\.alias\('its new name', 'b'\)"):
        check({"a": MAP, "b": SUM}, {"c": MAP})


def test_an_alias_of_a_name_without_state_is_reported():
    with pytest.raises(StateError, match=r"job\.alias\('sum', 'totl'\) names nothing that is stored"):
        check_program(MANIFEST, {"sum": MAP}, 64, (), {"sum": ("totl",)})
    assert idle_aliases({"other": MAP}, {"sum": MAP}, {"sum": ("totl",)}) == ["job.alias('sum', 'totl')"]
    assert not idle_aliases({"sum": MAP}, {"sum": MAP}, {"sum": ("total",)}), "it has moved over before"
    assert not idle_aliases({"total": MAP}, {"sum": MAP}, {"sum": ("older", "total")}), "it moves over now"


def test_another_codec_is_refused():
    with pytest.raises(
        StateError, match="step 'a': its state is stored as msgpack, and the program would read it as pickle"
    ):
        check({"a": MAP}, {"a": OperatorInfo("stateful_map", "pickle", 1)})


def test_kinds_whose_states_are_alike_may_take_each_others_place():
    check({"a": MAP}, {"a": OperatorInfo("stateful_op", "msgpack", 1)})


def test_an_aggregate_is_like_no_other():
    for was, now in ((MAP, SUM), (SUM, MAP)):
        with pytest.raises(StateError, match="their states differ; give it a new name"):
            check({"a": was}, {"a": now})


def test_other_aggregates_are_refused():
    other = OperatorInfo("aggregate", "msgpack", 1, layout=numbers("count", "max"))
    with pytest.raises(StateError, match="kept count:n, sum:n for each key, and now keeps count:n, max:n"):
        check({"a": SUM}, {"a": other})


def test_a_fold_that_becomes_an_aggregate_is_refused_with_both():
    def total(fold) -> Job:
        job = Job("totals", state="memory:fold-to-aggregate", n_shards=4)
        fold(job.source("in", iterable([]), type=dict).key_by("by", "user")).sink("out", discard())
        return job

    with MemoryRun(total(lambda keyed: keyed.stateful_map("n", lambda u, r, n: (n, n + 1), default=0))) as run:
        run.batch({"in": [{"user": "ada"}]})
    aggregated = total(lambda keyed: keyed.aggregate("n", n=count()))
    with pytest.raises(StateError, match=r"'n' was made by stateful_map and is now made by aggregate.* a new name"):
        MemoryRun(aggregated)
