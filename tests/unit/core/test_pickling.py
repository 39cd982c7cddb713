"""Pickles for other processes that cannot import the user's module."""

from __future__ import annotations

import datetime
import subprocess
import sys
import textwrap
from pathlib import Path

import cloudpickle
import msgspec
import pytest

from tidewheel._core import pickling

MODULE = """
    from __future__ import annotations

    import dataclasses
    import datetime
    from typing import Generic, Optional, TypeVar

    import msgspec

    T = TypeVar("T")

    @dataclasses.dataclass
    class Inner:
        x: int

    @dataclasses.dataclass
    class Click:
        user: str
        when: datetime.datetime
        inner: Inner | None = None

    class Base(msgspec.Struct, rename="camel", tag_field="type"):
        user_name: str
        notes: list[str] = []

    class Order(Base, kw_only=True, frozen=True, tag="order"):
        amount: int = msgspec.field(default=3, name="total")
        when: Optional[datetime.datetime] = None

        def __post_init__(self):
            if self.amount < 0:
                raise ValueError("negative")

        @property
        def doubled(self):
            return 2 * self.amount

        def more(self):
            return Order(user_name=self.user_name, amount=self.amount + 1)

        @classmethod
        def of(cls, user: str) -> Order:
            return cls(user_name=user)

    class Sealed(Order, kw_only=True, frozen=True):
        def more(self):
            return super().more().amount

    class Tree(msgspec.Struct):
        value: int
        children: list[Tree] = []

    class Boxed(msgspec.Struct, Generic[T]):
        item: T
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "user_program.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(str(tmp_path))
    import user_program

    cloudpickle.register_pickle_by_value(user_program)
    yield user_program
    cloudpickle.unregister_pickle_by_value(user_program)
    del sys.modules["user_program"]


def elsewhere(tmp_path: Path, value: object, code: str) -> str:
    """Open a pickle as `it` in a process that has never heard of the module, and return what the code prints."""
    (tmp_path / "pickle").write_bytes(pickling.dumps(value))
    program = f"import pathlib, pickle, sys\nit = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())\n{textwrap.dedent(code)}"
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(tmp_path / "pickle")],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_a_struct_arrives_with_its_fields_settings_and_methods(module, tmp_path):
    told = elsewhere(
        tmp_path,
        (module.Order, module.Order("ada", amount=7)),
        """
        import msgspec
        kind, order = it
        assert type(order) is kind
        assert (order.user_name, order.amount, order.notes, order.doubled) == ("ada", 7, [], 14)
        assert order.more() == kind.of("ada").more().__class__("ada", amount=8)
        assert msgspec.json.encode(order) == b'{"type":"order","userName":"ada","notes":[],"total":7,"when":null}'
        decoded = msgspec.json.decode(b'{"type":"order","userName":"bob","when":"2026-01-01T00:00:00Z"}', type=kind)
        assert decoded.when.year == 2026
        for wrong in (lambda: kind("ada", amount=-1), lambda: kind("ada", [], 7), lambda: setattr(order, "amount", 1)):
            try:
                wrong()
            except (ValueError, TypeError, AttributeError):
                continue
            raise AssertionError(wrong)
        print("ok")
        """,
    )
    assert told == "ok"


def test_structs_that_inherit_refer_to_themselves_or_are_generic(module, tmp_path):
    told = elsewhere(
        tmp_path,
        (
            module.Sealed(user_name="ada", amount=1),
            module.Tree(1, [module.Tree(2)]),
            module.Boxed[int],
            module.Boxed("a"),
        ),
        """
        import msgspec
        sealed, tree, generic, boxed = it
        print(sealed.more(), tree.children[0].value, msgspec.convert({"item": 3}, generic).item, boxed.item)
        """,
    )
    assert told == "2 2 3 a"


def test_annotations_as_text_are_understood_where_their_names_are_not_known(module, tmp_path):
    told = elsewhere(
        tmp_path,
        module.Click,
        """
        import datetime, msgspec, typing
        assert typing.get_type_hints(it)["when"] is datetime.datetime
        print(msgspec.convert({"user": "a", "when": datetime.datetime(2026, 1, 1), "inner": {"x": 1}}, it).inner.x)
        """,
    )
    assert told == "1"


def test_the_fields_of_a_dataclass_without_a_default_still_have_none(module, tmp_path):
    told = elsewhere(
        tmp_path,
        module.Inner,
        """
        import dataclasses, msgspec
        assert dataclasses.fields(it)[0].default is dataclasses.MISSING
        try:
            print(msgspec.json.decode(b"{}", type=it))
        except msgspec.ValidationError as error:
            print(error)
        """,
    )
    assert told == "Object missing required field `x`"


def test_a_class_that_msgspec_has_used_can_still_be_sent(module, tmp_path):
    click = {"user": "a", "when": datetime.datetime(2026, 1, 1)}
    assert msgspec.convert(click, module.Click).user == "a"
    told = elsewhere(tmp_path, module.Click, "print(it.__name__)")
    assert told == "Click"
    assert msgspec.convert(click, module.Click).user == "a"


def test_a_worker_sends_objects_of_the_class_that_the_next_worker_has(module, tmp_path):
    # Worker one gets the program and sends values on; worker two got the program too.
    program, values = tmp_path / "program", tmp_path / "values"
    program.write_bytes(pickling.dumps(module.Order))
    send = "import sys; from tidewheel._core import pickling; import pickle; kind = pickle.loads(open(sys.argv[1], 'rb').read())"
    first = f"{send}; open(sys.argv[2], 'wb').write(pickling.dumps([kind('ada')]))"
    second = (
        f"{send}; (order,) = pickle.loads(open(sys.argv[2], 'rb').read()); print(type(order) is kind, order.amount)"
    )
    for code in (first, second):
        ended = subprocess.run(
            [sys.executable, "-c", code, program, values], capture_output=True, text=True, check=True, cwd="/"
        )
    assert ended.stdout.strip() == "True 3"


def test_classes_that_can_be_imported_are_not_copied():
    assert pickling.dumps(cloudpickle.Pickler) == cloudpickle.dumps(cloudpickle.Pickler, protocol=5)
