"""The type of the keys that a step gets by an import: 7 and "7" are different keys."""

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
    """The keys of one step: their type, why it is known, and the types of the imported keys."""

    def __init__(self, plan: Plan, operator: str, given: type | str | None) -> None:
        """Take the type that the caller gives, if any; otherwise look for a declaration in the program."""
        self.operator = operator
        self._key_bys = list(_key_bys(plan, operator))
        self._plain: set[type] = set()
        self._kinds: dict[str, str] = {}
        self.type: type | None = None
        """None if unknown."""
        self.why = ""
        if given is not None:
            self.type, self.why = _key_type(given), "key_type= (--key-type) says"
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
        """Return what to do if the type is unknown."""
        functions = [node.name for node in self._key_bys if not isinstance(_key(node), str)]
        declare = f", or annotate what the function of {functions[0]!r} returns" if functions else ""
        return f"say --key-type int or --key-type str (key_type=int, key_type=str){declare}"

    def _names(self) -> list[str]:
        return [node.name for node in self._key_bys]


def _key_type(given: type | str) -> type:
    kind = TYPES.get(given) if isinstance(given, str) else given
    if kind not in SIMPLE:
        raise ConfigError(f"the type of keys is one of {', '.join(TYPES)}, not {given!r}")
    return kind


def _key_bys(plan: Plan, operator: str) -> Iterator[Node]:
    """Yield the steps that give the step's messages their keys."""
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
