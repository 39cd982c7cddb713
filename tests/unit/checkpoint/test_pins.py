import itertools

import pytest

from support.checkpoint_strategies import full_state
from support.internals import open_store
from tidewheel._checkpoint.pins import Pins, pin
from tidewheel.errors import ConfigError, CorruptError, NotFound, StateError

_fresh = itertools.count()


@pytest.fixture
def pins() -> Pins:
    return Pins(open_store(f"memory:pins-{next(_fresh)}"))


def test_a_pin_lists_every_file_that_its_checkpoint_references():
    assert pin("p", "reader", full_state()).files == ("state/1.snap", "state/1.table", "state/2.delta", "state/2.table")


def test_a_savepoint_has_the_whole_checkpoint(pins):
    pins.create(pin("before-upgrade", "savepoint", full_state(), holder="me"))
    found = pins.read("before-upgrade")
    assert found.state() == full_state()
    assert (found.sequence, found.holder, found.expires_at) == (2, "me", None)


def test_other_pins_have_it_on_demand():
    assert pin("p", "fork", full_state(), copy=True).state() == full_state()
    with pytest.raises(StateError, match="no copy of checkpoint 2"):
        pin("p", "reader", full_state()).state()


def test_a_name_is_taken_once_and_the_same_pin_again_is_fine(pins):
    first = pin("p", "reader", full_state())
    pins.create(first)
    pins.create(first)
    with pytest.raises(StateError, match="already a pin 'p'"):
        pins.create(pin("p", "fork", full_state()))
    assert pins.read("p") == first


def test_a_reader_can_move_its_expiry(pins):
    pins.create(pin("p", "reader", full_state(), expires_at=10))
    pins.renew(pin("p", "reader", full_state(), expires_at=20))
    assert pins.read("p").expires_at == 20


def test_a_pin_holds_until_it_expires():
    held = pin("p", "reader", full_state(), expires_at=10)
    assert held.holds(9)
    assert not held.holds(10)
    assert pin("p", "fork", full_state()).holds(10**30)


def test_all_are_listed_by_name_and_a_dropped_one_is_gone(pins):
    for name in ("b", "a", "c"):
        pins.create(pin(name, "reader", full_state()))
    pins.drop("b")
    pins.drop("never-there")
    assert [found.name for found in pins.all()] == ["a", "c"]
    with pytest.raises(NotFound):
        pins.read("b")


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "-x", "x" * 201, "a b", "ü"])
def test_a_name_that_cannot_be_a_files_name_is_refused(name, pins):
    with pytest.raises(ConfigError, match="cannot be the name"):
        pin(name, "savepoint", full_state())
    with pytest.raises(ConfigError, match="cannot be the name"):
        pins.read(name)


def test_a_damaged_pin_is_named_and_fails_the_listing(pins):
    pins.create(pin("p", "reader", full_state()))
    pins._store.write("pins/p.pin", pins._store.read("pins/p.pin")[:-1])
    with pytest.raises(CorruptError, match=r"pins/p\.pin"):
        pins.all()
