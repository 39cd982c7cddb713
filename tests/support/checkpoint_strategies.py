"""Checkpoints of every shape, for property tests."""

from hypothesis import strategies as st

from support.internals import FileRef, PartRef, ShardParts
from tidewheel._checkpoint.fleet_ledger import FleetLedger, HeldShard, RevokedShard
from tidewheel._checkpoint.manifest import (
    ForkOrigin,
    OperatorInfo,
    PinnedCell,
    PinnedTable,
    SeenFile,
    Span,
    SparkLog,
    SparkSource,
    StagedOutput,
)
from tidewheel._state.layout import Accumulator, StateLayout
from tidewheel._state.type_description import Field, StateType
from tidewheel._time.frontier import Frontier
from tidewheel._time.windows import Fixed
from tidewheel.checkpoints import CheckpointId, Manifest

names = st.text(max_size=8)
counts = st.integers(0, 2**63 - 1)
numbers = st.integers(-(2**63), 2**63 - 1)
checksums = st.integers(0, 2**64 - 1)
types = st.recursive(
    st.builds(StateType, names, names, names),
    lambda inner: st.builds(
        StateType,
        names,
        parts=st.lists(inner, max_size=2).map(tuple),
        fields=st.lists(st.builds(Field, names, inner, st.booleans(), st.none() | st.binary()), max_size=2).map(tuple),
    ),
    max_leaves=4,
)
fields = st.lists(st.builds(Field, names, types), max_size=2).map(tuple)
layouts = st.builds(
    StateLayout,
    names,
    st.none() | st.builds(Fixed, counts, counts, counts),
    st.lists(st.builds(Accumulator, st.sampled_from(["sum", "rows"]), st.none() | names, counts), max_size=2).map(
        tuple
    ),
    st.none() | counts,
)
spans = st.builds(Span, counts, counts)
positions = st.recursive(
    numbers | names, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2), max_leaves=4
)
file_names = st.from_regex(r"\A/?[a-z0-9_=]{1,3}(/[a-z0-9_=-]{1,3}\.delta)?\Z")
tokens = st.text("ABCxyz019_", max_size=8)


@st.composite
def shard_parts(draw, files):
    if not files:
        return ShardParts()
    part = st.builds(PartRef, st.sampled_from(files), counts, counts, counts)
    return ShardParts(draw(st.none() | part), tuple(draw(st.lists(part, max_size=4))))


@st.composite
def checkpoint_states(draw):
    files = [
        FileRef(name, draw(counts), draw(checksums)) for name in draw(st.lists(file_names, unique=True, max_size=4))
    ]
    parts = shard_parts(files)
    return Manifest(
        id=CheckpointId(draw(st.text(min_size=1, max_size=8)), draw(counts), draw(counts)),
        kind=draw(st.sampled_from(["batch", "claim", "flush", "import", "restore", "handover", "table"])),
        run=draw(tokens),
        batch=draw(st.none() | counts),
        event_count=draw(counts),
        epoch=draw(st.none() | numbers),
        carried_epoch=draw(st.none() | numbers),
        delivered_epoch=draw(st.none() | numbers),
        behind=draw(st.dictionaries(counts, st.none() | numbers, max_size=2)),
        host=draw(names),
        source_offsets=draw(st.dictionaries(names, positions, max_size=3)),
        source_kinds=draw(st.dictionaries(names, names, max_size=3)),
        operator_states=draw(st.dictionaries(names, st.binary(max_size=20), max_size=3)),
        metadata=draw(st.dictionaries(names, names, max_size=3)),
        n_shards=draw(st.sampled_from([1, 64, 1024])),
        parallelism=draw(st.integers(1, 64)),
        now=draw(counts),
        operators=draw(
            st.dictionaries(
                names, st.builds(OperatorInfo, names, names, counts, st.none() | counts, layouts, fields), max_size=2
            )
        ),
        key_kinds=draw(st.dictionaries(names, names, max_size=2)),
        shards=draw(st.dictionaries(st.integers(0, 1023), parts, max_size=4)),
        driver=draw(parts),
        seen=tuple(draw(st.lists(st.builds(SeenFile, names, names, counts, counts, counts), max_size=2))),
        outputs=tuple(
            draw(
                st.lists(
                    st.builds(StagedOutput, names, counts, st.lists(st.binary(max_size=9), max_size=2).map(tuple)),
                    max_size=2,
                )
            )
        ),
        outputs_of=draw(st.none() | counts),
        published=draw(counts),
        retract=draw(st.none() | spans),
        retracted=tuple(draw(st.lists(spans, max_size=2))),
        sinks=draw(st.dictionaries(st.tuples(names, st.sampled_from(["", "files in /out"])), counts, max_size=2)),
        cells=draw(
            st.dictionaries(names, st.builds(PinnedCell, counts, st.none() | st.binary(max_size=9)), max_size=2)
        ),
        frontiers=draw(st.dictionaries(names, st.builds(Frontier, st.none() | numbers, counts), max_size=2)),
        counts=draw(st.dictionaries(names, counts, max_size=2)),
        spark=draw(
            st.none()
            | st.builds(
                SparkLog,
                names,
                st.dictionaries(counts, names, max_size=2),
                st.dictionaries(counts, names, max_size=2),
                st.dictionaries(st.from_regex(r"\A[0-9]{1,3}/[0-9]{1,3}\Z"), names, max_size=2),
                st.lists(names, max_size=3).map(tuple),
                st.lists(st.builds(SparkSource, names, names, counts), max_size=2).map(tuple),
                counts,
            )
        ),
        lineage=draw(tokens),
        parent=draw(st.none() | counts),
        flushed=draw(st.none() | counts),
        forked_from=draw(st.none() | st.builds(ForkOrigin, names, names)),
        fleet=draw(
            st.none()
            | st.builds(
                FleetLedger,
                st.dictionaries(counts, st.builds(HeldShard, counts, counts), max_size=2),
                st.dictionaries(counts, st.builds(RevokedShard, tokens, counts, counts, parts), max_size=2),
                st.dictionaries(counts, counts, max_size=2),
                st.none() | tokens,
            )
        ),
        tables=draw(
            st.dictionaries(
                names,
                st.builds(PinnedTable, counts, counts, counts, st.just("ab"), st.just(tuple(files))),
                max_size=2,
            )
        ),
        layout=draw(st.sampled_from(["", "one", "shared", "divided"])),
        source_starts=draw(st.dictionaries(names, positions, max_size=2)),
    )


def full_state() -> Manifest:
    """A checkpoint with something in every field."""
    delta, snap = FileRef("state/2.delta", 300, 2**64 - 1), FileRef("state/1.snap", 900, 5)
    parts = ShardParts(PartRef(snap, 1, 400, 9), (PartRef(delta, 2, 30, 3),))
    return Manifest(
        CheckpointId("orders", 2, created_at=1_700_000_000_000_000_000),
        kind="flush",
        run="r1",
        batch=1,
        event_count=77,
        epoch=0,
        source_offsets={"log": 8192, "topic": {"t/0": 5}},
        source_kinds={"log": "files", "topic": "kafka-log"},
        operator_states={"window": b"\x00\xff"},
        metadata={"version": "1.2"},
        host="h1",
        carried_epoch=-1,
        delivered_epoch=-1,
        behind={1: None},
        former_operators={1: {"window": OperatorInfo("stateful_map", "msgpack", 2)}},
        n_shards=2,
        parallelism=2,
        now=1_700_000_000_000_000_001,
        operators={
            "window": OperatorInfo(
                "stateful_map", "msgpack", 3, 9, StateLayout("f"), (Field("total", StateType("int")),)
            )
        },
        shards={0: parts, 1: ShardParts(None, (PartRef(delta, 2, 10, 1),))},
        driver=ShardParts(None, (PartRef(delta, 2, 5, 1),)),
        seen=(SeenFile("log", "/in/a.json", 3, 1_700_000_000_000, 12),),
        outputs=(StagedOutput("files", 10, (b"t1", b"t2")),),
        key_kinds={"by-user": "str"},
        outputs_of=1,
        published=1,
        retract=Span(1, 3),
        retracted=(Span(4, 6),),
        sinks={("files", "files in /out"): 2},
        cells={"limit": PinnedCell(4, b"\x07")},
        frontiers={"log": Frontier(None, 17)},
        counts={"in": 77},
        spark=SparkLog(
            "q", {0: "v1", 1: "v1"}, {0: "v1"}, {"0/0": "{}"}, ("a", "b"), (SparkSource("in", "files", 0),), 1
        ),
        lineage="l",
        parent=1,
        flushed=2,
        forked_from=ForkOrigin("parent", "before"),
        fleet=FleetLedger({0: HeldShard(1, 7)}, {1: RevokedShard("2", 3, 9, parts)}, {0: 1, 1: 3}, "token"),
        tables={
            "prices": PinnedTable(
                3, 12, 99, "ab", (FileRef("state/1.table", 70, 8), FileRef("state/2.table", 71, 9)), (1,)
            )
        },
        layout="divided",
        source_starts={"new": {"orders/0": 3}},
    )
