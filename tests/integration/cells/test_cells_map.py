from __future__ import annotations

import threading
import uuid

import pytest

from support.cell_places import in_parallel
from support.waiting import IN_TIME
from tidewheel import cells
from tidewheel._cells.backends import memory
from tidewheel.cells import TicketIssuer, TicketValidator
from tidewheel.errors import ConfigError

SECRET = "s" * 32


def test_keys_written_anywhere_are_seen_everywhere(place):
    one, two = place.open().map_writer("members", int), place.open().map_reader("members", int)
    assert dict(two) == {}
    one.write("a", 1)
    one.write("b/deep", 2)
    two.when.holds("a", timeout=IN_TIME)
    two.when.holds("b/deep", timeout=IN_TIME)
    assert dict(two) == {"a": 1, "b/deep": 2}
    assert len(two) == 2
    assert two["a"] == two.get("a") == 1
    assert two.get("c") is None
    with pytest.raises(KeyError):
        two["c"]


def test_late_joiners_have_everything(place):
    one = place.open().map_writer("members", int)
    for number in range(5):
        one.write(str(number), number)
    one.remove("3")
    assert dict(place.open().map_reader("members", int)) == {"0": 0, "1": 1, "2": 2, "4": 4}


def test_a_discarded_key_leaves_no_value_and_its_versions_continue(place):
    one, other = place.open(), place.open()
    members, late = one.map_writer("members", int), other.map_writer("members", int)
    first = members.write("a", 1)
    late.when.holds("a", timeout=IN_TIME)
    emptied = members.remove("a")
    assert not members.discard("a", first), "it is not at that version any more"
    discarded = members.discard("a", emptied)
    assert one.names() == ([] if discarded else ["members/a"])
    assert discarded == members.discards == one.url.startswith(("memory:", "etcd:")), (
        "elsewhere versions would begin anew"
    )
    assert not late.compare_exchange_at("a", first, 3).applied, "whoever slept since is refused"
    again = members.write("a", 2)
    assert again > emptied
    late.refresh()
    assert dict(late) == {"a": 2}
    assert not late.compare_exchange_at("a", emptied, 3).applied


def test_a_removed_key_goes_and_may_come_again(place):
    one, two = place.open().map_writer("members", int), place.open().map_reader("members", int)
    one.write("a", 1)
    two.when.holds("a", timeout=IN_TIME)
    removed = one.remove("a")
    two._wait(lambda: True if two.snapshot("a").version >= removed else None, IN_TIME, "")
    assert "a" not in two
    assert list(two) == []
    again = one.write("a", 2)
    assert again > removed
    two.when.holds("a", timeout=IN_TIME)


def test_exchanges_of_one_key(place):
    one, two = place.open().map_writer("members", int), place.open().map_writer("members", int)
    assert one.compare_exchange("a", None, 1).applied
    done = two.compare_exchange("a", None, 2)
    assert (done.applied, done.seen) == (False, 1)
    assert two.compare_exchange_at("a", done.version, 2).applied
    won = in_parallel(*(lambda m=m, n=n: m.compare_exchange("x", None, n) for n, m in enumerate((one, two))))
    assert sum(exchange.applied for exchange in won) == 1


def test_a_map_is_a_view_over_ordinary_cells(place):
    connection = place.open()
    members = connection.map_writer("members", int)
    version = members.write("a", 1)
    assert connection.reader("members/a", int).snapshot() == members.snapshot("a") == (version, 1)
    connection.writer("members/b", int).write(2)
    members.when.holds("b", timeout=IN_TIME)
    connection.writer("membership", int).write(3)
    assert sorted(members.refresh()) == ["a", "b"]
    with pytest.raises(cells.WrongType):
        connection.reader("members/a", str)


def test_updated_waits_for_any_key_and_closing_ends_it(place):
    connection = place.open()
    members, writer = connection.map_reader("members", int), place.open().map_writer("members", int)
    thread = threading.Thread(target=lambda: members.when.updated(timeout=IN_TIME))
    thread.start()
    number = 0
    while thread.is_alive():
        number += 1
        writer.write(f"key {number % 5}", number)
        thread.join(0.01)
    with pytest.raises(TimeoutError, match=r"cells default/members/ at .* did not change"):
        members.when.updated(timeout="0 s")
    members.when.online(timeout=IN_TIME)
    with pytest.raises(TimeoutError):
        members.when.offline(timeout="0 s")
    members.close()
    for attempt in (members.when.updated, lambda: members["a"], lambda: list(members.refresh() and members["a"])):
        with pytest.raises(cells.Closed):
            attempt()


def test_an_outage_is_reported():
    url = f"memory:{uuid.uuid4()}"
    with cells.open(url) as connection:
        members = connection.map_writer("members", int)
        members.write("a", 1)
        with memory.outage(url):
            members.when.offline(timeout=IN_TIME)
            assert members["a"] == 1
            with pytest.raises(cells.Offline):
                members.write("a", 2)
        members.when.online(timeout=IN_TIME)
        members.write("a", 3)
        assert members["a"] == 3


def test_tickets_are_required_of_every_key(place):
    writer = place.open().map_writer("members", int)
    writer.write("bad", 1)
    reader = place.open().map_reader("members", int).require_ticket(TicketValidator(SECRET, audience="app"))
    assert dict(reader) == {}
    writer.present(TicketIssuer(SECRET, audience="app").issue("me", lifetime="60 s")).write("good", 2)
    reader.when.holds("good", timeout=IN_TIME)
    assert dict(reader) == {"good": 2}


def test_names_that_cannot_be_are_refused():
    with cells.open("memory:") as connection:
        for name in ("", "a//b", "/a", "a\nb"):
            with pytest.raises(ConfigError, match="cannot name a cell"):
                connection.reader(name, int)
        with pytest.raises(ConfigError, match="cannot be a namespace"):
            connection.reader("x", int, namespace="a/b")
        with pytest.raises(ConfigError, match="cannot name a cell"):
            connection.map_writer("m", int).write("", 1)


def test_once_the_first_write_wins(place):
    candidates = [place.open().once("choice", str) for _ in range(4)]
    assert candidates[0].get() is None
    settled = in_parallel(*(lambda c=c, n=n: c.set(f"by {n}") for n, c in enumerate(candidates)))
    (value,) = {outcome.value for outcome in settled}
    assert [outcome.won for outcome in settled].count(True) == 1
    assert candidates[3].wait(timeout=IN_TIME) == value
    with place.open().once("choice", str) as late:
        assert late.get() == value
        assert late.set("too late") == (False, value)
    with pytest.raises(TimeoutError, match=r"was not set within 0\.01 s"):
        place.open().once("other", str).wait(timeout="0.01 s")
