"""B5: the manager makes checkpoints by events, time and batches, per stream, and recovers whole ones."""

import itertools

import pytest

from tidewheel.checkpoints import CheckpointManager, CheckpointStore, Manifest
from tidewheel.errors import StateError

SECOND = 10**9
_fresh = itertools.count()


@pytest.fixture(params=["memory", "file", "s3"])
def url(request, tmp_path) -> str:
    name = f"b5-{next(_fresh)}"
    if request.param == "memory":
        return f"memory:{name}"
    if request.param == "file":
        return f"file://{tmp_path}/{name}"
    return request.getfixturevalue("seaweedfs").url(name)


class Clock:
    now = 1_000 * SECOND

    def __call__(self) -> int:
        return self.now


def manager(url: str, clock: Clock | None = None, **triggers) -> CheckpointManager:
    """A manager as a process of its own would make it."""
    return CheckpointManager(CheckpointStore.open(url), clock=clock or Clock(), **triggers)


def feed(manager: CheckpointManager, stream: str, sequences) -> list[int]:
    """Feed events; return the sequences at which a checkpoint was made."""
    return [sequence for sequence in sequences if manager.on_event(stream, sequence) is not None]


def test_b5_by_events_counts_real_events_not_sequence_numbers(url):
    made = manager(url, every_events=3)
    assert feed(made, "from-0", range(7)) == [2, 5]
    assert feed(made, "from-1000", range(1_000, 1_007)) == [1_002, 1_005]
    assert feed(made, "gaps", [5, 90, 91, 4_000, 4_001, 4_002, 9_999]) == [91, 4_002]
    assert made.total_checkpoints == 6
    assert [state.event_count for state in made.store.list("gaps")] == [3, 6]


def test_b5_by_time(url):
    clock = Clock()
    made = manager(url, clock, every="5 s")
    assert made.on_event("s", 1) is None
    clock.now += 4 * SECOND
    assert made.on_event("s", 2) is None
    clock.now += 1 * SECOND
    assert made.on_event("s", 3).sequence == 3
    clock.now += 60 * SECOND
    assert made.on_tick("s") is None, "there is no event since the last checkpoint"
    assert made.on_event("s", 4).sequence == 4
    made.on_event("s", 5)
    clock.now += 5 * SECOND
    assert made.on_tick("s").sequence == 5


def test_b5_by_batches(url):
    made = manager(url, every_batches=2)
    assert made.on_batch("s", 9, events=10) is None
    assert made.on_batch("s", 14, events=5).event_count == 15
    assert made.on_batch("s", None, events=0) is None
    assert made.on_batch("s", None, events=0) is None, "there is no event since the last checkpoint"
    assert made.on_batch("s", 15, events=1).event_count == 16


def test_b5_each_stream_counts_for_itself(url):
    made = manager(url, every_events=2)
    both = itertools.chain.from_iterable((("a", n), ("b", n)) for n in range(1, 5))
    assert [(s, n) for s, n in both if made.on_event(s, n)] == [("a", 2), ("b", 2), ("a", 4), ("b", 4)]


def test_b5_recover_gives_nothing_before_the_first_checkpoint(url):
    made = manager(url, every_events=100)
    assert feed(made, "s", range(99)) == []
    assert manager(url, every_events=100).recover("s") is None


def test_b5_recover_gives_the_whole_checkpoint(url):
    def fill(state: Manifest) -> Manifest:
        return state.replace(
            operator_states={"sum": b"\x07"},
            source_offsets={"log": 50, "topic": "{}"},
            metadata={"by": "test"},
        )

    taken = manager(url, every_events=1).on_event("s", 50, epoch=5, fill=fill)
    found = manager(url, every_events=1).recover("s")
    assert found == taken
    assert (found.sequence, found.event_count, found.epoch) == (50, 1, 5)
    assert found.operator_states == {"sum": b"\x07"}
    assert found.source_offsets == {"log": 50, "topic": "{}"}
    assert (found.id.created_at, found.metadata) == (Clock.now, {"by": "test"})


def test_b5_processing_continues_after_the_event_of_the_checkpoint(url):
    events = {number: number * number for number in range(10, 100, 3)}

    def run(first_crash: int | None) -> int:
        """Sum the events in a loop of our own, from whatever checkpoint there is."""
        own = manager(url, every_events=4)
        found = own.recover("sums")
        total = int.from_bytes(found.operator_states["sum"], "big") if found else 0
        done = found.sequence if found else -1
        for number in sorted(number for number in events if number > done):
            if number == first_crash:
                return -1
            total += events[number]
            own.on_event(
                "sums",
                number,
                fill=lambda s, t=total: s.replace(operator_states={"sum": t.to_bytes(8, "big")}),
            )
        own.checkpoint("sums", fill=lambda s: s.replace(operator_states={"sum": total.to_bytes(8, "big")}))
        return total

    for crash in (10, 31, 34, 73):
        assert run(crash) == -1
    assert run(None) == sum(events.values())
    assert manager(url, every_events=1).recover("sums").event_count == len(events)


def test_b5_the_next_trigger_counts_from_the_recovered_checkpoint(url):
    assert feed(manager(url, every_events=5), "s", range(1, 8)) == [5]
    again = manager(url, every_events=5)
    assert again.recover("s").sequence == 5
    assert feed(again, "s", range(6, 12)) == [10]
    assert [state.event_count for state in again.store.list("s")] == [5, 10]


def test_b5_time_too_counts_from_the_recovered_checkpoint(url):
    clock = Clock()
    manager(url, clock, every_events=1).on_event("s", 1)
    clock.now += 4 * SECOND
    again = manager(url, clock, every="5 s")
    again.recover("s")
    assert again.on_event("s", 2) is None
    clock.now += 1 * SECOND
    assert again.on_event("s", 3).sequence == 3


def test_b5_an_event_that_is_in_the_checkpoint_already_is_refused(url):
    feed(manager(url, every_events=2), "s", [1, 2])
    again = manager(url, every_events=2)
    with pytest.raises(StateError, match="event 2 of stream 's' does not come after 2"):
        again.on_event("s", 2)
    assert feed(again, "s", [3, 4]) == [4]
