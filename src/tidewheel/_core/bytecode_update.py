"""Recognise functions that return their argument with added fields, `{**argument, "field": …}`, by their bytecode.

Such a function passes most of a record on unchanged. Called with a dict of only the fields that it reads, it returns
the same new fields; so the others need not become Python values. The bytecode is executed on a stack of marks instead of
values. An unknown instruction ends that: the function then gets whole records.
"""

from __future__ import annotations

import dis
from enum import Enum
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from tidewheel._core.bytecode_reads import (
    LOOKS_AT_FRAMES,
    METHODS_ARE_ATTRIBUTES,
    FieldsRead,
    is_subscript,
    variables,
)


class DictUpdate(NamedTuple):
    """The fields of the argument that are read by item, and those that the result adds or replaces."""

    read: FieldsRead
    names: tuple[str, ...]


def analyse_update(function: Any) -> DictUpdate | None:
    """Return the fields that a function of one dict adds to a copy of it; None if it may do anything else.

    >>> analyse_update(lambda flight: {**flight, "late": flight["delay"] > 15}).names
    ('late',)
    >>> analyse_update(lambda flight: print(flight) or {**flight, "late": True}) is None
    True
    """
    return _update_in(function.__code__) if isinstance(function, FunctionType) else None


class _Is(Enum):
    """The values of interest on the stack, besides constants."""

    ARGUMENT = "the argument"
    EMPTY = "a new dict"
    RESULT = "a new dict with the argument's fields"
    OTHER = "something else"


class _Display(NamedTuple):
    """A dict of these fields."""

    names: tuple[str, ...]


class _Constant(NamedTuple):
    value: Any


class _Unknown(Exception):
    """Raised at code that proves nothing."""


@lru_cache(maxsize=256)
def _update_in(code: CodeType) -> DictUpdate | None:
    if code.co_argcount < 1 or code.co_varnames[0] in code.co_cellvars or not LOOKS_AT_FRAMES.isdisjoint(code.co_names):
        return None
    steps = _Interpreter(code.co_varnames[0])
    try:
        for instruction in dis.get_instructions(code):
            steps.take(instruction)
    except (_Unknown, IndexError):
        return None
    return steps.result


class _Interpreter:
    """Follows code without branches from its first instruction to its return, with the known part of the stack."""

    def __init__(self, argument: str) -> None:
        self.argument = argument
        self.stack: list[Any] = []
        self.read: set[str] = set()
        self.added: tuple[str, ...] = ()
        self.result: DictUpdate | None = None

    def take(self, instruction: dis.Instruction) -> None:
        name, number = instruction.opname, instruction.arg or 0
        if self.result is not None:
            raise _Unknown
        if name in _NO_EFFECT:
            return
        if name in ("LOAD_CONST", "LOAD_SMALL_INT"):
            self.stack.append(_Constant(instruction.argval))
        elif "_FAST" in name:
            for action, variable in variables(instruction):
                self._variable(action, variable)
        elif is_subscript(instruction):
            self._subscript()
        elif name == "BUILD_MAP" and number == 0:
            self.stack.append(_Is.EMPTY)
        elif name == "BUILD_MAP":
            items = self._popped(2 * number)
            self._display(items[::2], items[1::2])
        elif name == "BUILD_CONST_KEY_MAP":
            *values, names = self._popped(number + 1)
            self._display([_Constant(each) for each in names.value], values)
        elif name == "DICT_UPDATE" and number == 1:
            self._merged(*self._popped(2))
        elif name == "RETURN_VALUE" and self.stack == [_Is.RESULT]:
            self.result = DictUpdate(FieldsRead(frozenset(self.read), "item" if self.read else None), self.added)
        elif name in _POPS_AND_PUSHES:
            pops, pushes = _POPS_AND_PUSHES[name]
            self._others(pops, pushes)
        elif name in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_STRING"):
            self._others(number, 1)
        elif name == "LOAD_GLOBAL":
            self._others(0, 1 + (number & 1))
        elif name == "LOAD_ATTR":
            self._others(1, 1 + (number & 1 if METHODS_ARE_ATTRIBUTES else 0))
        elif name == "CALL":
            self._others(number + 2, 1)
        elif name == "CALL_KW":
            self._others(number + 3, 1)
        elif name == "FORMAT_VALUE":
            self._others(2 if number & 4 else 1, 1)
        else:
            raise _Unknown

    def _popped(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise _Unknown
        popped = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return popped

    def _others(self, pops: int, pushes: int) -> None:
        """Replace uninteresting values on the stack by other ones."""
        _check_others(self._popped(pops))
        self.stack += [_Is.OTHER] * pushes

    def _variable(self, action: str, name: str) -> None:
        if action == "LOAD":
            self.stack.append(_Is.ARGUMENT if name == self.argument else _Is.OTHER)
        elif action == "STORE" and name != self.argument:
            self._others(1, 0)
        else:
            raise _Unknown

    def _subscript(self) -> None:
        value, at = self._popped(2)
        if value is _Is.ARGUMENT:
            if not isinstance(at, _Constant) or not isinstance(at.value, str):
                raise _Unknown
            self.read.add(at.value)
        else:
            _check_others([value, at])
        self.stack.append(_Is.OTHER)

    def _display(self, names: list[Any], values: list[Any]) -> None:
        _check_others(values)
        if not all(isinstance(each, _Constant) and isinstance(each.value, str) for each in names):
            raise _Unknown
        self.stack.append(_Display(tuple(each.value for each in names)))

    def _merged(self, into: Any, what: Any) -> None:
        if into is _Is.EMPTY and what is _Is.ARGUMENT:
            self.stack.append(_Is.RESULT)
        elif into is _Is.RESULT and isinstance(what, _Display):
            self.added += tuple(name for name in what.names if name not in self.added)
            self.stack.append(_Is.RESULT)
        else:
            raise _Unknown


_NO_EFFECT = {"RESUME", "NOP", "CACHE", "PRECALL", "KW_NAMES", "COPY_FREE_VARS", "EXTENDED_ARG"}
_POPS_AND_PUSHES = {
    "POP_TOP": (1, 0),
    "PUSH_NULL": (0, 1),
    "LOAD_DEREF": (0, 1),
    "BINARY_OP": (2, 1),
    "COMPARE_OP": (2, 1),
    "IS_OP": (2, 1),
    "CONTAINS_OP": (2, 1),
    "UNARY_NOT": (1, 1),
    "UNARY_NEGATIVE": (1, 1),
    "LOAD_METHOD": (1, 2),
    "STORE_SUBSCR": (3, 0),
    "TO_BOOL": (1, 1),
    "BINARY_SLICE": (3, 1),
    "BUILD_SLICE": (2, 1),
    "CONVERT_VALUE": (1, 1),
    "FORMAT_SIMPLE": (1, 1),
    "FORMAT_WITH_SPEC": (2, 1),
}
"""How many values an instruction removes from the stack and adds to it."""


def _check_others(items: list[Any]) -> None:
    if any(item in (_Is.ARGUMENT, _Is.RESULT) for item in items):
        raise _Unknown
