"""Find the fields of an argument that a function reads, by its bytecode.

Most functions of a program take a record and read a few of its fields: `lambda flight: flight.delay > 15`. Such a
function cannot distinguish a whole record from one with only these fields, and creating nine fields of which one is
read takes most of the time. Any other use of the argument (passing it on, keeping it, changing it, asking for its type)
requires the whole record, and so does bytecode that is not known here. Each Python has its own bytecode: the tests of this
module run on every supported Python.
"""

from __future__ import annotations

import dis
import re
import sys
from functools import lru_cache
from types import CodeType, FunctionType, MethodType
from typing import Any, Literal, NamedTuple

LOOKS_AT_FRAMES = {
    "locals",
    "vars",
    "dir",
    "eval",
    "exec",
    "breakpoint",
    "_getframe",
    "currentframe",
    "set_trace",
    "stack",
}
"""Names through which a function can access all its variables."""

METHODS_ARE_ATTRIBUTES = sys.version_info >= (3, 12)
"""Whether LOAD_ATTR also loads methods for a call, as LOAD_METHOD did before; the lowest bit of its number says so."""

_ON_A_VARIABLE = re.compile("(LOAD|STORE|DELETE|CLEAR)_FAST")


class FieldsRead(NamedTuple):
    """The fields that are read, and how: `record.field` or `record["field"]`."""

    names: frozenset[str]
    by: Literal["attribute", "item"] | None
    """None if no field is read at all."""


def analyse_reads(function: Any, position: int) -> FieldsRead | None:
    """Return the fields that a function reads of its argument at a position; None if it may do anything else with it.

    >>> analyse_reads(lambda flight: flight.delay > 15 and not flight.cancelled, 0).names == {"delay", "cancelled"}
    True
    >>> analyse_reads(lambda flight: print(flight), 0) is None
    True
    """
    if isinstance(function, MethodType):
        function, position = function.__func__, position + 1
    if not isinstance(function, FunctionType):
        return None
    return _read_in(function.__code__, position)


def returned_field(function: Any) -> str | None:
    """Return the field of its only argument that a function returns unchanged; None if it may return anything else.

    >>> returned_field(lambda order: order.id), returned_field(lambda order: order["id"]), returned_field(lambda n: n.id + 1)
    ('id', 'id', None)
    """
    read = analyse_reads(function, 0)
    if read is None or len(read.names) != 1 or not isinstance(function, FunctionType):
        return None
    work = [each.opname for each in dis.get_instructions(function) if each.opname not in ("RESUME", "NOP", "CACHE")]
    # The argument, its field, or the field's name and the look-up, and the end.
    is_alone = len(work) == (3 if read.by == "attribute" else 4) and work[-1] == "RETURN_VALUE"
    return next(iter(read.names)) if is_alone else None


def is_subscript(instruction: dis.Instruction) -> bool:
    """Return whether an instruction is `value[index]`."""
    return instruction.opname == "BINARY_SUBSCR" or (
        instruction.opname == "BINARY_OP" and instruction.argrepr == "[]"  # Since Python 3.14.
    )


def variables(instruction: dis.Instruction) -> list[tuple[str, str]]:
    """Return what an instruction does with local variables: pairs of the action (LOAD, STORE, …) and the name, in order.

    Since Python 3.13 one instruction can do two things, such as LOAD_FAST_LOAD_FAST.
    """
    actions = _ON_A_VARIABLE.findall(instruction.opname.replace("LOAD_FAST_AND_CLEAR", "CLEAR_FAST"))
    names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
    return list(zip(actions, names, strict=True)) if actions else []


@lru_cache(maxsize=256)
def _read_in(code: CodeType, position: int) -> FieldsRead | None:
    if position >= code.co_argcount or not LOOKS_AT_FRAMES.isdisjoint(code.co_names):
        return None
    argument = code.co_varnames[position]
    if argument in code.co_cellvars:
        return None  # An inner function also uses the argument.
    attributes: set[str] = set()
    items: set[str] = set()
    instructions = list(dis.get_instructions(code))
    for at, instruction in enumerate(instructions):
        used = variables(instruction)
        if argument not in [name for _, name in used]:
            continue
        if used[-1] != ("LOAD", argument) or argument in [name for _, name in used[:-1]]:
            return None  # Assigned, or loaded with another value above it on the stack.
        after = instructions[at + 1 : at + 3]
        if after and after[0].opname == "LOAD_ATTR":
            if METHODS_ARE_ATTRIBUTES and (after[0].arg or 0) & 1:
                return None  # A method of the argument sees all of it.
            attributes.add(after[0].argval)
        elif len(after) == 2 and after[0].opname == "LOAD_CONST" and is_subscript(after[1]):
            if not isinstance(after[0].argval, str):
                return None
            items.add(after[0].argval)
        else:
            return None
    if attributes and items:
        return None
    return FieldsRead(frozenset(attributes or items), "attribute" if attributes else "item" if items else None)
