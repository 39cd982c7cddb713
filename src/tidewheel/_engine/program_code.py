"""The fingerprint of a program: equal if steps, connections, defaults of cells and the user's functions are equal.

Sources and sinks are not part of it: a batch may run again with copies of its records. Neither are values that functions
capture, unless they are plain: two runs of one program may capture different objects.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

from tidewheel._connectors.sink import Sink
from tidewheel._connectors.source import Source
from tidewheel._core.user_code import GENERATED, is_installed, is_users_module
from tidewheel._engine.plan import Plan

_PLAIN = (str, bytes, int, float, complex, type(None), type(Ellipsis))
_DEEPEST = 8
_MOST_ITEMS = 1000


def fingerprint(plan: Plan) -> str:
    """Return the fingerprint of a program, after the version of Python: the same code differs between versions."""
    digest = hashlib.sha256()
    for node in plan.nodes:
        inputs = [(port.node, port.port) for port in node.inputs]
        digest.update(f"{node.name} {node.operator.kind} {inputs}\n".encode())
        for text in _described(node.operator, {}, 0):
            digest.update(text.encode(errors="backslashreplace") + b"\0")
    for cell in plan.cells:
        # A commit that used the default of a cell does not contain it.
        digest.update(f"{cell.name} {cell.default!r}\n".encode(errors="backslashreplace"))
    return f"{sys.version_info.major}.{sys.version_info.minor}-{digest.hexdigest()[:16]}"


def source_files(plan: Plan) -> list[str]:
    """Return the files in which the user's functions are written."""
    seen: dict[int, Any] = {}
    for node in plan.nodes:
        for _ in _described(node.operator, seen, 0):
            pass
    users = (value for value in seen.values() if isinstance(value, FunctionType) and _is_users(value))
    return sorted({function.__code__.co_filename for function in users})


def differs(one: str, other: str) -> bool:
    """Return whether two fingerprints are certainly of different programs: those of different Pythons cannot be compared."""
    return one != other and one.partition("-")[0] == other.partition("-")[0]


def _described(value: Any, seen: dict[int, Any], depth: int) -> Iterator[str]:
    """Yield texts that are equal for equal code, in every process."""
    if isinstance(value, _PLAIN):
        yield repr(value)
        return
    if id(value) in seen or depth > _DEEPEST:
        return
    seen[id(value)] = value  # It stays alive, so that no other object gets its id.
    yield type(value).__qualname__
    if isinstance(value, MethodType):
        parts: list[Any] = [value.__func__, type(value.__self__)]
    elif isinstance(value, FunctionType):
        parts = list(_parts_of(value)) if _is_users(value) else []
    elif isinstance(value, functools.partial):
        parts = [value.func, list(value.args), value.keywords]
    elif isinstance(value, CodeType):
        parts = [value.co_code, value.co_names, *value.co_consts]
    elif isinstance(value, type):
        parts = [each for each in vars(value).values() if isinstance(each, FunctionType) and _is_users(each)]
    elif isinstance(value, frozenset | set):
        parts = sorted(repr(item) for item in value if isinstance(item, _PLAIN))[:_MOST_ITEMS]
    elif isinstance(value, dict):
        parts = [part for item in list(value.items())[:_MOST_ITEMS] for part in item]
    elif isinstance(value, list | tuple):
        parts = list(value[:_MOST_ITEMS])
    elif isinstance(value, Source | Sink):
        parts = []
    elif dataclasses.is_dataclass(value) and not is_users_module(type(value).__module__):
        parts = [getattr(value, each.name) for each in dataclasses.fields(value)]
    else:
        parts = [type(value)]
    for part in parts:
        yield from _described(part, seen, depth + 1)


def _is_users(function: FunctionType) -> bool:
    """Return whether a function is written by the user: not by a library, nor generated, as the methods of dataclasses are."""
    file = function.__code__.co_filename
    return is_users_module(function.__module__) and file != GENERATED and not is_installed(file)


def _parts_of(function: FunctionType) -> Iterator[Any]:
    """Yield the code of a function, its defaults, and the functions and plain values that it uses."""
    yield function.__code__
    yield function.__defaults__
    for name in function.__code__.co_names:
        if isinstance(used := function.__globals__.get(name), (*_PLAIN, FunctionType, type)):
            yield used
    for cell in function.__closure__ or ():
        try:
            captured = cell.cell_contents
        except ValueError:  # A function that is defined later.
            continue
        if isinstance(captured, (*_PLAIN, FunctionType, type)):
            yield captured
