"""The type of the keys that an operator gets by an import: 7 and "7" are different keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidewheel._core.keys import kinds_of
from tidewheel._engine.key_kinds import SIMPLE, declared_type, kinds_by_name, merged_kinds
from tidewheel._engine.plan import Plan
from tidewheel._operators.graph import Node
from tidewheel._operators.keyed.key_by import KeyBy
from tidewheel.errors import ConfigError, StateError

TYPES: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
"""The types of keys that a cell of text can be."""


class ImportedKeys:
    """The keys of one operator: of which type they are, who says so, and which types came."""

    def __init__(self, plan: Plan, operator: str, told: type | str | None) -> None:
        """Take the type that the caller tells, if any; else the program may tell it."""
        self.operator = operator
        self._key_bys = list(_key_bys(plan, operator))
        self._plain: set[type] = set()
        self._kinds: dict[str, str] = {}
        self.type: type | None = None
        """None: nobody tells it."""
        self.why = ""
        if told is not None:
            self.type, self.why = _told(told), "key_type= (--key-type) says"
            return
        for node in self._key_bys:
            declared = declared_type(plan, node)
            if declared is not None:
                self.type, self.why = declared, f"the program declares for {node.name!r}"
                return

    def checked(self, key: Any) -> Any:
        """Return a key as it is stored; refuse one that is not of the type, if that is known."""
        kind = type(key)
        if self.type is not None and kind is not self.type and key is not None:
            if not (self.type is float and kind is int):
                raise StateError(
                    f"the key {key!r} is of type {kind.__name__}, and the keys of {self.operator!r} are of type "
                    f"{self.type.__name__}, as {self.why}; {key!r} is another key than one of that type. Cast the column, or say "
                    f"key_type={kind.__name__} (--key-type {kind.__name__}) if the program's keys are such"
                )
            key = float(key)
        if kind is tuple:
            self._kinds = merged_kinds(self._kinds, *(kinds_by_name(name, kinds_of([key])) for name in self._names()))
        else:
            self._plain.add(type(key))
        return key

    def kinds(self) -> dict[str, str]:
        """Return the types that came, by the `key_by` that makes such keys: the batches of the job must have the same."""
        names = {kind.__name__ for kind in self._plain}
        plain = [kinds_by_name(name, {"": names}) for name in self._names() if names]
        return merged_kinds(self._kinds, *plain)

    def how_to_tell(self) -> str:
        """Return what to do where nobody tells the type."""
        functions = [node.name for node in self._key_bys if not isinstance(_key(node), str)]
        declare = f", or annotate what the function of {functions[0]!r} returns" if functions else ""
        return f"say --key-type int or --key-type str (key_type=int, key_type=str){declare}"

    def _names(self) -> list[str]:
        return [node.name for node in self._key_bys]


def _told(told: type | str) -> type:
    kind = TYPES.get(told) if isinstance(told, str) else told
    if kind not in SIMPLE:
        raise ConfigError(f"the type of keys is one of {', '.join(TYPES)}, not {told!r}")
    return kind


def _key_bys(plan: Plan, operator: str) -> Iterator[Node]:
    """Yield the steps that give the operator's messages their keys."""
    ahead = [node for node in plan.nodes if node.name == operator]
    looked = set()
    while ahead:
        node = ahead.pop()
        if node.id in looked:
            continue
        looked.add(node.id)
        if isinstance(node.operator, KeyBy):
            yield node
        else:
            ahead += [plan.nodes[port.node] for port in node.inputs]


def _key(node: Node) -> Any:
    assert isinstance(node.operator, KeyBy)
    return node.operator.key
