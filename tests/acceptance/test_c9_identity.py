"""C9: identity is namespace, name and declared type; another declared type is an error, not a second cell."""

from __future__ import annotations

import pytest

from support.waiting import IN_TIME
from tidewheel import cells


def test_c9_another_declared_type_is_an_error_when_opened(place):
    place.open().writer("x", float).write(0.5)
    connection = place.open()
    for attempt in (connection.reader, connection.writer):
        with pytest.raises(
            cells.WrongType, match=r"cell default/x at .* is declared as float, here as str; declare it the same"
        ):
            attempt("x", str)
    assert connection.reader("x", float).read() == 0.5


def test_c9_an_empty_cell_keeps_its_type(place):
    place.open().writer("x", float).clear()
    with pytest.raises(cells.WrongType):
        place.open().reader("x", int)


def test_c9_the_first_write_decides_between_two_that_opened_before_it(place):
    floats, texts = place.open().writer("x", float), place.open().writer("x", str)
    reader = place.open().reader("x", str)
    version = floats.write(0.5)
    with pytest.raises(cells.WrongType) as caught:
        texts.write("text")
    assert caught.value.value == "text"
    with pytest.raises(cells.WrongType):
        reader.when.reaches(version, timeout=IN_TIME)
    with pytest.raises(cells.WrongType):
        reader.read()
    assert floats.refresh() == (version, 0.5)


def test_c9_namespaces_and_names_are_kept_apart(place):
    connection = place.open()
    writers = {
        (namespace, name): connection.writer(name, str, namespace=namespace)
        for namespace in ("a", "b")
        for name in ("x", "x/y", "X", "x y", ".x", "ä%2F")
    }
    for (namespace, name), writer in writers.items():
        writer.write(f"{namespace} {name}")
    later = place.open()
    for namespace, name in writers:
        assert later.reader(name, str, namespace=namespace).read() == f"{namespace} {name}"
    assert later.names("a") == sorted(["x", "x/y", "X", "x y", ".x", "ä%2F"])
    assert later.names("a", prefix="x") == ["x", "x y", "x/y"]
    assert later.names("nothing here") == []


def test_c9_the_type_s_name_may_be_given(place):
    class ThresholdOfToday(float):
        pass

    place.open().writer("x", float, type_name="threshold").write(1.5)
    assert place.open().reader("x", float, type_name="threshold").read() == 1.5
    with pytest.raises(cells.WrongType, match="declared as threshold, here as float"):
        place.open().reader("x", float)
