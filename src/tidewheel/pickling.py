"""Pickles for what travels inside one job: the program, and values that are not columns.

cloudpickle sends a user's functions and classes by value, since the workers cannot import them. Two kinds of class need
help: a `msgspec.Struct`, whose fields cloudpickle does not see, and a class on which msgspec has left its cache. Stored state
is never pickled.
"""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any

import cloudpickle
import msgspec

_CACHE = "__msgspec_cache__"
_OWN = ("__slots__", "__module__", "__doc__", "__annotations__", "__qualname__", "__dict__", "__weakref__", _CACHE)
_made: dict[bytes, type] = {}

loads = pickle.loads


def dumps(value: Any) -> bytes:
    """Return the value as bytes that any worker of the job can load."""
    out = io.BytesIO()
    _Pickler(out, protocol=5).dump(value)
    return out.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type):
            if _CACHE in vars(obj):
                delattr(obj, _CACHE)  # msgspec makes it again when it needs it.
            if issubclass(obj, msgspec.Struct) and not _importable(obj):
                return _struct, (pickle_struct(obj),)
        return super().reducer_override(obj)


def _importable(cls: type) -> bool:
    module = sys.modules.get(cls.__module__)
    if module is None or cls.__module__ == "__main__" or cls.__module__ in cloudpickle.list_registry_pickle_by_value():
        return False
    found: Any = module
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is cls


def pickle_struct(cls: type[msgspec.Struct]) -> bytes:
    """Return a Struct class as bytes: its fields, its settings and what else is defined in it."""
    fields = [(field.name, field.type, field.default, field.default_factory) for field in msgspec.structs.fields(cls)]
    names = set(cls.__struct_fields__)
    namespace = {name: item for name, item in vars(cls).items() if name not in names and name not in _OWN}
    config = cls.__struct_config__
    settings = {
        name: getattr(config, name)
        for name in (
            "frozen",
            "eq",
            "order",
            "array_like",
            "gc",
            "weakref",
            "dict",
            "omit_defaults",
            "forbid_unknown_fields",
        )
    }
    return dumps((cls.__name__, fields, cls.__module__, namespace, settings))


def _struct(definition: bytes) -> type:
    """Make a Struct class, or return the one that the same definition made in this process before."""
    if definition not in _made:
        name, fields, module, namespace, settings = loads(definition)
        field: Any = msgspec.field
        made = [(at, kind, field(default=default, default_factory=factory)) for at, kind, default, factory in fields]
        _made[definition] = msgspec.defstruct(name, made, module=module, namespace=namespace, **settings)
    return _made[definition]
