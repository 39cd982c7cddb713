"""A graph cut into levels: where each step runs, and what crosses from level to level."""

from __future__ import annotations

import dataclasses
import itertools

import pyarrow as pa
import pytest

from tidewheel import Job, count, max_, session, sum_, tumbling
from tidewheel._engine.plan import Plan, columns_read, source_key
from tidewheel._engine.task_layout import batch_rule
from tidewheel._operators.graph import Port
from tidewheel.sinks import discard
from tidewheel.sources import dataframe, iterable

_names = itertools.count()
TYPES = pa.schema(
    [("user", pa.string()), ("n", pa.int64()), ("small", pa.int16()), ("when", pa.timestamp("us")), ("x", pa.float64())]
)


@dataclasses.dataclass
class Click:
    user: str
    n: int


@dataclasses.dataclass
class Measured:
    user: str
    n: float


def source(job: Job | None = None, name: str = "in", **options):
    job = job or Job(f"plan-{next(_names)}", state="memory:unit-plan")
    return job.source(name, lambda spark: None, **options)


def counted(stream, name: str = "count"):
    return stream.stateful_map(name, lambda k, v, n: (n + 1, n + 1), default=0)


def levels(plan: Plan) -> list[set[str]]:
    return [{plan.nodes[number].name for number in level} for level in plan.levels]


def done(stream, name: str = "out") -> Plan:
    return stream.sink(name, discard()).job.plan()


def test_a_program_without_keys_is_one_level():
    plan = done(source().map("m", str).filter("f", bool))
    assert levels(plan) == [{"in", "m", "f", "out"}]
    assert plan.edges == ()


def test_key_by_ends_a_level():
    plan = done(counted(source().map("m", str).key_by("k", "user")).map("after", str).key_by("again", "user"))
    assert levels(plan) == [{"in", "m", "k"}, {"count", "after", "again"}, {"out"}]
    assert [(plan.nodes[e.source.node].name, e.level, e.keyed, e.combines) for e in plan.edges] == [
        ("k", 1, True, False), ("again", 2, True, False),
    ]  # fmt: skip


def test_readers_of_one_output_share_an_edge_unless_they_combine():
    keyed = source().key_by("k", "user")
    counted(keyed).sink("a", discard())
    keyed.map("m", str).sink("b", discard())
    keyed.aggregate("sum", total=sum_("n")).sink("c", discard())
    keyed.reduce("max", max).sink("d", discard())
    plan = keyed.job.plan()
    found = [([plan.nodes[node].name for node, _ in edge.targets], edge.combines) for edge in plan.edges]
    assert found == [(["count", "m"], False), (["sum"], True), (["max"], True)]
    assert [edge.id for edge in plan.edges] == [0, 1, 2]


def test_branches_of_different_depth_meet_their_own_levels():
    stream = source()
    counted(stream.key_by("k", "user")).key_by("l", "user").map("deep", str).sink("a", discard())
    stream.map("shallow", str).sink("b", discard())
    assert levels(stream.job.plan()) == [{"in", "k", "shallow", "b"}, {"count", "l"}, {"deep", "a"}]


def test_every_reader_is_reached_by_exactly_one_way():
    stream = source()
    keyed = counted(stream.key_by("k", "user"))
    keyed.map("m", str).sink("a", discard())
    keyed.key_by("l", lambda n: n).map("n", str).sink("b", discard())
    plan = stream.job.plan()
    reached = [target for targets in plan.local.values() for target in targets]
    reached += [target for edge in plan.edges for target in edge.targets]
    wanted = [(node.id, at) for node in plan.nodes for at in range(len(node.inputs))]
    assert sorted(reached) == sorted(wanted)


def test_the_plan_knows_sources_and_steps_driven_by_time():
    job = Job("two", state="memory:unit-plan")
    source(job, "left").sink("a", discard())
    source(job, "right").sink("b", discard())
    plan = job.plan()
    assert [node.name for node in plan.sources()] == ["left", "right"]
    assert not plan.driven_by_time()


@pytest.mark.parametrize("key", ["user", "n", "small"])
def test_a_source_keyed_by_a_plain_column_has_a_source_key(key):
    assert source_key(done(counted(source().key_by("k", key))), TYPES) == key


@pytest.mark.parametrize(
    "build",
    [
        lambda s: counted(s.key_by("k", lambda row: row.user)),
        lambda s: counted(s.key_by("k", "when")),
        lambda s: counted(s.key_by("k", "x")),
        lambda s: counted(s.key_by("k", "absent")),
        lambda s: counted(s.map("m", str).key_by("k", "user")),
        lambda s: s.map("m", str),
    ],
)
def test_a_source_whose_keys_are_computed_has_no_source_key(build):
    assert source_key(done(build(source())), TYPES) is None


def test_a_key_that_its_declared_type_makes_another_one_is_made_in_python():
    # 1 and 1.0 are two keys to the store, with two shards.
    assert source_key(done(counted(source(type=Measured).key_by("k", "n"))), TYPES) is None
    assert source_key(done(counted(source(type=Click).key_by("k", "n"))), TYPES) == "n"


def test_tasks_find_their_records_by_the_key_column_before_combining():
    assert source_key(done(source().key_by("k", "user").aggregate("sum", total=sum_("n"))), TYPES) == "user"


def test_a_source_with_two_readers_has_no_source_key():
    stream = source()
    counted(stream.key_by("k", "user")).sink("a", discard())
    stream.sink("b", discard())
    assert source_key(stream.job.plan(), TYPES) is None


def timed(stream):
    return stream.assign_timestamps("at", "time", unit="ns").limit_out_of_orderness("bound", "0 s", partition="shelf")


@pytest.mark.parametrize(
    ("build", "columns"),
    [
        (lambda s: counted(s.key_by("k", "user", value="n")), ["n", "user"]),
        (lambda s: s.key_by("k", "user").aggregate("a", total=sum_("n"), rows=count()), ["n", "user"]),
        (lambda s: s.key_by("k", "user").aggregate("a", rows=count()), ["user"]),
        (
            lambda s: timed(s).key_by("k", "user").window("w", tumbling("5 ns"), most=max_("n")),
            ["n", "shelf", "time", "user"],
        ),
        (lambda s: timed(s).key_by("k", "user").window("w", session("5 ns"), n=count()), ["shelf", "time", "user"]),
        (lambda s: timed(s).key_by("k", "user").window("w", tumbling("5 ns"), n=count()).late, None),
        (lambda s: timed(s).key_by("k", "user").window("w", tumbling("5 ns"), max, default=0), None),
        (lambda s: counted(s.key_by("k", "user")), None),
        (lambda s: counted(s.key_by("k", lambda row: row.user, value="n")), None),
        (lambda s: s.map("m", str), None),
    ],
)
def test_columns_that_the_program_does_not_read_are_not_asked_for(build, columns):
    plan = done(build(source()))
    assert columns_read(plan, plan.nodes[0]) == columns


@pytest.mark.parametrize(
    ("build", "columns"),
    [
        (lambda s: s.key_by("k", "user").stateful_map("s", lambda key, row, n: (row.n, n), default=0), ["n", "user"]),
        (lambda s: s.filter("f", lambda row: row.m > 1).map("m", lambda row: row.n), ["m", "n"]),
        (lambda s: s.key_by("k", lambda row: row.user).aggregate("a", total=sum_("n")), ["n", "user"]),
        (lambda s: s.branch("b", lambda row: row.m, lambda row: row.n)[1].map("m", lambda row: row.z), ["m", "n", "z"]),
        (lambda s: s.flat_map("m", lambda row: [row.n]), ["n"]),
        (lambda s: s.filter_map("m", lambda row: row.n), ["n"]),
        pytest.param(lambda s: s.filter("f", lambda row: row.m > 1), None, id="the sink takes all"),
        pytest.param(lambda s: s.map("m", lambda row: row["n"]), None, id="a row by item may be anything"),
        pytest.param(lambda s: s.map("m", lambda row: row._fields), None, id="not a field"),
        pytest.param(lambda s: s.map("m", lambda row: str(row)), None, id="passed on"),
    ],
)
def test_columns_that_functions_do_not_read_need_not_be_read(build, columns):
    plan = done(build(source()))
    assert columns_read(plan, plan.nodes[0], by_code=True) == columns


def test_fields_that_functions_add_are_not_those_of_the_source():
    dicts = source(type=dict).map("m", lambda order: {**order, "dear": order["n"] > 9})
    dicts = dicts.map("more", lambda order: {**order, "most": order["dear"] + order["z"]})
    plan = done(dicts.key_by("k", "user").map("last", lambda order: order["dear"] or order["m"]))
    assert columns_read(plan, plan.nodes[0], by_code=True) == ["m", "n", "user", "z"]


def test_columns_are_those_of_all_branches():
    stream = source()
    keyed = stream.key_by("k", "user")
    keyed.aggregate("a", total=sum_("n")).sink("x", discard())
    keyed.aggregate("b", total=sum_("m")).sink("y", discard())
    stream.key_by("other", "place", value="z").sink("z", discard())
    plan = stream.job.plan()
    assert columns_read(plan, plan.nodes[0]) == ["m", "n", "place", "user", "z"]
    stream.sink("all", discard())
    assert columns_read(stream.job.plan(), plan.nodes[0]) is None


def test_a_sink_next_to_an_aggregate_needs_all_columns():
    keyed = source().key_by("k", "user")
    keyed.aggregate("a", total=sum_("n")).sink("x", discard())
    keyed.sink("y", discard())
    plan = keyed.job.plan()
    assert columns_read(plan, plan.nodes[0]) is None


def test_the_dead_letter_sink_is_part_of_the_plan():
    stream = source()
    stream.sink("out", discard())
    stream.job.dead_letter("dead", discard())
    plan = stream.job.plan()
    assert plan.dead_letter is not None
    assert plan.nodes[plan.dead_letter].name == "dead"
    assert plan.crossing(Port(plan.dead_letter)) == []


NO_SHUFFLE = "on a local Spark, those without a shuffle in worker processes next to the driver, after the first ones"


def test_the_rule_for_batches_names_shuffles_and_places():
    job = Job("rule", state="memory:unit-plan-rule")
    source = job.source("in", iterable([]))
    source.sink("out", discard())
    assert batch_rule(job.plan()) == f"in tasks of Spark, without a shuffle; {NO_SHUFFLE}"
    sums = source.key_by("a").aggregate("sums", n=count())
    sums.sink("sums-out", discard())
    small = "small ones in one task, without a shuffle"
    assert batch_rule(job.plan()) == f"in tasks of Spark, with a shuffle; {small}; {NO_SHUFFLE}"
    sums.key_by("by-n", "n").aggregate("again", n=count()).sink("again-out", discard())
    assert batch_rule(job.plan()) == f"in tasks of Spark, with 2 shuffles; {small}; {NO_SHUFFLE}"


def keyed(source) -> str:
    job = Job("rule", state="memory:unit-plan-rule")
    job.source("in", source).key_by("a").aggregate("sums", n=count()).sink("out", discard())
    return batch_rule(job.plan())


def test_the_rule_for_batches_mentions_that_tasks_may_read_the_whole_batch():
    assert "; few tasks that read files may each read the whole batch, which saves a shuffle;" in keyed(iterable([]))


def test_the_rule_for_batches_of_a_dataframe_has_tasks_of_spark_only():
    assert keyed(dataframe(lambda spark: None)) == "in tasks of Spark, with a shuffle"
