import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.internals import FileRef, PartRef, ShardParts, open_store
from tidewheel._checkpoint.fleet_ledger import FleetLedger
from tidewheel._checkpoint.garbage import collect, collectable, unpublished_sequences
from tidewheel._checkpoint.manifest import StagedOutput
from tidewheel._checkpoint.names import staged_file, state_file
from tidewheel._checkpoint.pinning import hold_checkpoint, hold_savepoint
from tidewheel._checkpoint.pins import Pin
from tidewheel._checkpoint.unpublished import carried
from tidewheel._storage import Entry, Store
from tidewheel.checkpoints import CheckpointId, Manifest, StreamCheckpoints
from tidewheel.errors import CorruptError, NotFound, StateError
from unit.checkpoint.interleaving import run_interleaved

NOW = 10**18
_fresh = itertools.count()

sequences = st.integers(1, 12)
state_names = st.builds(
    state_file, sequences, st.just("r"), st.integers(0, 2), st.just(0), st.sampled_from(["delta", "snap"])
)
staged_names = st.builds(staged_file, sequences, st.just("r"), st.integers(0, 2), st.just(0), st.just("out.arrow"))
other_names = st.sampled_from(["state/notes.txt", "staged/README", "state/12-r-0-0.delta"])
entries = st.builds(
    Entry,
    path=state_names | staged_names | other_names,
    size=st.just(1),
    modified=st.sampled_from([0.0, NOW / 1e9 - 50, NOW / 1e9]),
)
states = st.builds(lambda sequence, names: with_files(sequence, *names), sequences, st.lists(state_names, max_size=4))
pins = st.builds(
    Pin,
    name=st.just("p"),
    kind=st.sampled_from(["savepoint", "fork", "reader", "adopter"]),
    sequence=sequences,
    files=st.lists(state_names, max_size=3).map(tuple),
    expires_at=st.sampled_from([None, NOW - 1, NOW, NOW + 1]),
)


def with_files(sequence: int, *names: str, **fields) -> Manifest:
    parts = tuple(PartRef(FileRef(name, 1, 1), 1, 1, 1) for name in names)
    return Manifest(CheckpointId("job", sequence, 0), shards={0: ShardParts(None, parts)}, **fields)


@given(
    st.lists(entries),
    st.lists(states, max_size=4),
    st.lists(pins, max_size=3),
    sequences,
    st.integers(0, 100),
)
def test_nothing_needed_nothing_young_and_nothing_unknown_is_ever_collected(listing, kept, pins, oldest, seconds):
    gone = collectable(listing, kept, pins, oldest, NOW, seconds * 10**9)
    paths = {entry.path for entry in gone}
    for state in kept:
        assert not paths & {file.name for file in state.files()}
    for pin in pins:
        if pin.expires_at is None or pin.expires_at > NOW:
            assert not paths & set(pin.files)
    for entry in gone:
        assert int(entry.path.split("/")[1].split("-")[0]) < oldest
        assert entry.modified <= NOW / 1e9 - seconds
        assert entry.path not in ("state/notes.txt", "staged/README", "state/12-r-0-0.delta")


@given(st.lists(entries), st.lists(states, max_size=4), st.lists(pins, max_size=3), sequences)
def test_remaining_files_are_needed_young_or_unknown(listing, kept, pins, oldest):
    gone = collectable(listing, kept, pins, oldest, NOW, 0)
    needed = {file.name for state in kept for file in state.files()}
    needed |= {name for pin in pins if pin.holds(NOW) for name in pin.files}
    for entry in listing:
        if entry not in gone and "-r-" in entry.path and len(entry.path.split("/")[1].split("-")[0]) == 20:
            assert entry.path in needed or int(entry.path.split("/")[1][:20]) >= oldest


class World:
    """A job that commits, each time with a delta file, at times with a snapshot that makes them needless."""

    def __init__(self) -> None:
        self.store = open_store(f"memory:garbage-{next(_fresh)}")
        self.job = StreamCheckpoints(self.store, "job")
        self.parts = ShardParts()

    def commit(self, snapshot: bool = False, output: bool = False) -> None:
        sequence = 1 if self.job.head is None else self.job.head.sequence + 1
        part = self._part(sequence, "delta")
        if snapshot:
            self.parts = ShardParts(self._part(sequence, "snap"), ())
        else:
            self.parts = ShardParts(self.parts.snapshot, (*self.parts.deltas, part))
        if output:
            self.job.folder.create(staged_file(sequence, "r", 0, 0, "out.arrow"), b"rows")
        outputs = (StagedOutput("out", 1, (b"token",)),) if output else ()
        self.job.commit(Manifest(CheckpointId("job", sequence, 0), run="r", shards={0: self.parts}, outputs=outputs))

    def names(self) -> set[str]:
        return {entry.path for prefix in ("state", "staged") for entry in self.job.folder.list(prefix)}

    def _part(self, sequence: int, suffix: str) -> PartRef:
        name = state_file(sequence, "r", 0, 0, suffix)
        self.job.folder.create(name, b"x")
        return PartRef(FileRef(name, 1, 1), sequence, 1, 1)


def sweep(checkpoints: StreamCheckpoints, **options):
    """A collection for which every file is old enough."""
    return collect(checkpoints, grace=0, now=2**62, **options)


def test_a_collection_removes_and_reports_files_that_no_kept_checkpoint_needs():
    world = World()
    for number in range(6):
        world.commit(snapshot=number == 3, output=True)
    world.job.retain(1)
    dry = sweep(world.job, dry_run=True)
    before = world.names()
    done = sweep(world.job)
    assert done == dry
    assert done.bytes == sum(4 if "staged" in name else 1 for name in done.files)
    assert set(done.files) == before - world.names()
    assert world.names() == {
        state_file(4, "r", 0, 0, "snap"),
        state_file(5, "r", 0, 0, "delta"),
        state_file(6, "r", 0, 0, "delta"),
        staged_file(6, "r", 0, 0, "out.arrow"),
    }
    assert sweep(world.job).files == ()


def test_files_of_an_uncommitted_attempt_are_collected_later():
    world = World()
    world.commit()
    stray = state_file(2, "r", 0, 7, "delta")
    world.job.folder.create(stray, b"x")
    for _ in range(2):
        assert sweep(world.job).files == ()
        world.commit()
    world.job.retain(1)
    assert sweep(world.job).files == (stray,)


def test_output_that_only_claims_carry_on_may_be_unpublished_and_stays():
    world = World()
    world.commit(output=True)
    for sequence in (2, 3, 4):
        head = world.job.head
        world.job.commit(head.replace(id=CheckpointId("job", sequence, 0), kind="claim", **carried(head)))
    world.job.retain(2)
    staged = staged_file(1, "r", 0, 0, "out.arrow")
    assert sweep(world.job).files == ()
    world.commit()
    world.job.retain(1)
    assert sweep(world.job).files == (staged,)


def test_nothing_is_collected_where_no_checkpoint_is():
    world = World()
    world.job.folder.create(state_file(1, "r", 0, 0, "delta"), b"x")
    assert sweep(world.job).files == ()


def test_young_files_stay():
    world = World()
    for _ in range(3):
        world.commit(snapshot=True)
    world.job.retain(1)
    assert collect(world.job).files == ()


def test_a_savepoint_holds_its_files_until_it_is_dropped():
    world = World()
    world.commit()
    saved = hold_checkpoint(world.job, 1, "keep-me", "savepoint")
    for _ in range(3):
        world.commit(snapshot=True)
    world.job.retain(1)
    sweep(world.job)
    assert world.job.pins.read("keep-me").state() == saved
    assert {file.name for file in saved.files()} <= world.names()
    world.job.pins.drop("keep-me")
    assert {file.name for file in saved.files()} <= set(sweep(world.job).files)


def test_a_collection_keeps_files_of_checkpoints_made_meanwhile(monkeypatch):
    """They are more than `keep`, and all of them are kept: somebody may name one, restore it or read it."""
    world = World()
    for _ in range(3):
        world.commit(snapshot=True)
    listed = type(world.job.folder).list

    def busy(self, *where):
        monkeypatch.undo()
        for _ in range(3):
            world.commit(snapshot=True)
        return listed(self, *where)

    collector = StreamCheckpoints(world.store, "job")
    real = collector.retain
    monkeypatch.setattr(
        collector, "retain", lambda keep: (real(keep), monkeypatch.setattr(type(world.job.folder), "list", busy))
    )
    collect(collector, grace=0, now=NOW * 10, keep=1)
    for state in world.job.list():
        assert {file.name for file in state.files()} <= world.names()


def test_an_expired_readers_pin_is_removed_after_the_grace_period():
    world = World()
    world.commit()
    hold_checkpoint(world.job, 1, "reader-1", "reader", expires_at=NOW)
    assert collect(world.job, now=NOW + 5, grace=10).expired == ()
    assert collect(world.job, now=NOW + 10, grace=10).expired == ("reader-1",)
    assert world.job.pins.all() == []


def test_a_damaged_pin_stops_the_collection_before_anything_is_removed():
    world = World()
    for _ in range(3):
        world.commit(snapshot=True)
    world.job.retain(1)
    world.job.folder.create("pins/p.pin", b"damaged")
    before = world.names()
    with pytest.raises(CorruptError):
        sweep(world.job)
    assert world.names() == before


def test_a_checkpoint_that_is_not_kept_cannot_be_held():
    world = World()
    world.commit()
    with pytest.raises(NotFound):
        hold_checkpoint(world.job, 7, "p", "savepoint")
    assert world.job.pins.all() == []


def test_a_name_in_use_keeps_its_checkpoint():
    world = World()
    world.commit()
    world.commit()
    hold_checkpoint(world.job, 1, "p", "savepoint")
    with pytest.raises(StateError, match="already"):
        hold_checkpoint(world.job, 2, "p", "savepoint")
    assert world.job.pins.read("p").sequence == 1


ALL = 99


def orders():
    """Every order in which one task stops once, another runs to its end, and the third stops once too."""
    for first, second, third in itertools.permutations(range(3)):
        for stop, third_stop in itertools.product(range(8), range(8)):
            yield [first] * stop + [second] * ALL + [third] * third_stop + [first] * ALL + [third] * ALL


@pytest.mark.parametrize("kind", ["savepoint", "reader"])
def test_a_pin_made_during_a_collection_holds_all_its_files_or_fails(kind):
    outcomes = set()
    for order in orders():
        world = World()
        for number in range(3):
            world.commit(snapshot=number == 2)

        def holder(store: Store) -> Manifest:
            return hold_checkpoint(StreamCheckpoints(store, "job"), 2, "held", kind)

        def retainer(store: Store) -> None:
            StreamCheckpoints(store, "job").retain(1)

        def collector(store: Store) -> None:
            sweep(StreamCheckpoints(store, "job"))

        held, *others = run_interleaved(world.store, [holder, retainer, collector], order)
        assert others == [None, None]
        outcomes.add(check_held(world, held, order))
    assert outcomes == {"held", "not made"}


def test_a_fork_of_a_savepoint_dropped_meanwhile_has_all_files_or_fails():
    outcomes = set()
    for order in orders():
        world = World()
        world.commit()
        hold_checkpoint(world.job, 1, "saved", "savepoint")
        for _ in range(2):
            world.commit(snapshot=True)
        world.job.retain(1)

        def forker(store: Store) -> Manifest:
            return hold_savepoint(StreamCheckpoints(store, "job"), "saved", "fork-new", "fork")

        def dropper(store: Store) -> None:
            StreamCheckpoints(store, "job").pins.drop("saved")

        def collector(store: Store) -> None:
            sweep(StreamCheckpoints(store, "job"))

        held, *others = run_interleaved(world.store, [forker, dropper, collector], order)
        assert others == [None, None]
        outcomes.add(check_held(world, held, order))
    assert outcomes == {"held", "not made"}


def check_held(world: World, held: Manifest | Exception, order: list[int]) -> str:
    """All that was held is there, also after one more collection; or it was refused and no pin is left."""
    sweep(world.job)
    if isinstance(held, Exception):
        assert isinstance(held, NotFound), order
        assert world.job.pins.all() == [], order
        return "not made"
    assert {file.name for file in held.files()} <= world.names(), order
    return "held"


def test_the_runs_of_a_fleet_have_their_own_unpublished_output():
    store = open_store(f"memory:unpublished-{next(_fresh)}")
    output = (StagedOutput("out", 1, (b"token",)),)
    for stream, sequence, fields in (
        ("orders", 1, {"fleet": FleetLedger()}),
        ("orders/1", 4, {"kind": "claim", "outputs": output, "outputs_of": 3}),
        ("orders/2", 7, {"outputs": output}),
        ("orders-old", 9, {"outputs": output}),
    ):
        StreamCheckpoints(store, stream).save(Manifest(CheckpointId(stream, sequence), **fields))
    assert unpublished_sequences(store, "orders") == {3, 7}
    assert unpublished_sequences(store, "orders-old") == {9}
    assert unpublished_sequences(store, "other") == set()
