"""Pickles for data that travels inside one job: the program, and values that are not columns. Stored state is never pickled.

cloudpickle sends a user's functions and classes by value, because workers cannot import them. Three kinds of class need
special handling. A `msgspec.Struct` gets its fields when the class is created; cloudpickle creates the class empty and
fills it later, so it would arrive without fields. Annotations as text (`from __future__ import annotations`) can only
be resolved where their names are known, which is here. And a class with msgspec's cache cannot be pickled together with
the cache.
"""

from __future__ import annotations

import dataclasses
import inspect
import io
import pickle
import site
import sys
import sysconfig
import typing
import uuid
import weakref
from types import FunctionType
from typing import Any

import cloudpickle
import msgspec

loads = pickle.loads

_INSTALLED = tuple({sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"], *site.getsitepackages()})

_StructMeta: Any = type(msgspec.Struct)
_CACHE = "__msgspec_cache__"
_SETTINGS = (
    "frozen",
    "eq",
    "order",
    "array_like",
    "gc",
    "repr_omit_defaults",
    "omit_defaults",
    "forbid_unknown_fields",
    "weakref",
    "dict",
    "cache_hash",
    "tag",
    "tag_field",
)

# A class that was received in a pickle is sent under the identity it came with.
_ids: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()
_known: weakref.WeakValueDictionary[str, type] = weakref.WeakValueDictionary()


def dumps(value: Any) -> bytes:
    """Pickle a value, including everything it needs that a worker cannot import."""
    out = io.BytesIO()
    _Pickler(out, protocol=5).dump(value)
    return out.getvalue()


def send_by_value(thing: Any) -> None:
    """Send the module of a function or of an object's class by value if it is the user's, because workers cannot import it."""
    for holder in (thing, type(thing), getattr(thing, "func", None)):
        name = getattr(holder, "__module__", None)
        module = sys.modules.get(name) if isinstance(name, str) else None
        file = getattr(module, "__file__", None)
        if file is None or str(name).split(".")[0] in ("__main__", "tidewheel") or file.startswith(_INSTALLED):
            continue
        cloudpickle.register_pickle_by_value(module)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        # Called for every object, so check the common case first.
        if not isinstance(obj, type | FunctionType):
            # The marker for a missing default is compared by identity, so a copy would count as a default.
            return "MISSING" if obj is dataclasses.MISSING else NotImplemented
        if isinstance(obj, type) and not _importable(obj):
            if _CACHE in vars(obj):
                delattr(obj, _CACHE)  # msgspec creates it again when it needs it.
            _resolve_annotations(obj)
            if isinstance(obj, _StructMeta):
                return _struct_parts(obj)
        return super().reducer_override(obj)


def _importable(kind: type) -> bool:
    """Return whether a worker can import the class by its name, by cloudpickle's rules."""
    module = sys.modules.get(kind.__module__)
    if module is None or kind.__module__ == "__main__" or _by_value(kind.__module__):
        return False
    value: Any = module
    for name in kind.__qualname__.split("."):
        value = getattr(value, name, None)
    return value is kind


def _by_value(module: str) -> bool:
    registered = cloudpickle.list_registry_pickle_by_value()
    parts = module.split(".")
    return any(".".join(parts[:length]) in registered for length in range(1, len(parts) + 1))


def _resolve_annotations(kind: type) -> None:
    """Replace annotations as text by their types, if all names are known."""
    own = inspect.get_annotations(kind)
    if any(isinstance(annotation, str) for annotation in own.values()):
        try:
            hints = typing.get_type_hints(kind, include_extras=True)
        except Exception:
            return
        kind.__annotations__ = {name: hints[name] for name in own}


def _struct_parts(kind: Any) -> tuple[Any, ...]:
    """Return the data to recreate a Struct: its fields and settings at once, the rest after its creation.

    Methods and annotations may refer to the class itself, so they can only be added once it exists.
    """
    own = {field.name: _given(field) for field in msgspec.structs.fields(kind) if field.name in kind.__slots__}
    at_once = ("__module__", "__qualname__", "__orig_bases__", "__post_init__")
    space = {name: getattr(kind, name) for name in at_once if name in kind.__dict__ or name == "__qualname__"}
    settings = {name: getattr(kind.__struct_config__, name) for name in _SETTINGS}
    settings["kw_only"] = any(name not in kind.__match_args__ for name in own)
    own_names = {*space, *own, "__slots__"}
    later = {name: value for name, value in kind.__dict__.items() if name not in own_names}
    identity = _ids.setdefault(kind, uuid.uuid4().hex)
    _known.setdefault(identity, kind)
    return _make_struct, (identity, kind.__name__, kind.__bases__, own, space, settings), later, None, None, _add_later


def _given(field: msgspec.structs.FieldInfo) -> dict[str, Any]:
    """Return the arguments of `msgspec.field` for this field."""
    arguments: dict[str, Any] = {"name": field.encode_name}
    if field.default_factory is not msgspec.NODEFAULT:
        arguments["default_factory"] = field.default_factory
    elif field.default is not msgspec.NODEFAULT:
        arguments["default"] = field.default
    return arguments


def _make_struct(
    identity: str,
    name: str,
    bases: tuple[type, ...],
    own: dict[str, dict[str, Any]],
    space: dict[str, Any],
    settings: dict[str, Any],
) -> type:
    """Create the class once per process, so that later values have the existing class."""
    kind = _known.get(identity)
    if kind is None:
        fields = {field: msgspec.field(**given) for field, given in own.items()}
        annotations = dict.fromkeys(own, Any)
        kind = _known[identity] = _StructMeta(
            name, bases, {**space, **fields, "__annotations__": annotations}, **settings
        )
        _ids[kind] = identity
    return kind


def _add_later(kind: type, attributes: dict[str, Any]) -> None:
    for name, value in attributes.items():
        setattr(kind, name, value)
