"""Pickles for what travels inside one job: the program, and values that are not columns. Stored state is never pickled.

cloudpickle sends a user's functions and classes by value, since the workers cannot import them. Three kinds of class need
help. A `msgspec.Struct` has its fields from the moment it is made; cloudpickle makes the class empty and fills it later, so
it would arrive without any. Annotations that are text (`from __future__ import annotations`) can only be read where the
names they use are known, which is here. And a class on which msgspec has left its cache cannot be pickled with it.
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

# A class that came in a pickle is sent on under the identity it came with.
_ids: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()
_known: weakref.WeakValueDictionary[str, type] = weakref.WeakValueDictionary()


def dumps(value: Any) -> bytes:
    """Return the pickle of a value; what it needs and a worker cannot import is in it."""
    out = io.BytesIO()
    _Pickler(out, protocol=5).dump(value)
    return out.getvalue()


def send_by_value(thing: Any) -> None:
    """Let the module of a function or of an object's class travel by value, if it is the user's own: workers cannot import it."""
    for holder in (thing, type(thing), getattr(thing, "func", None)):
        name = getattr(holder, "__module__", None)
        module = sys.modules.get(name) if isinstance(name, str) else None
        file = getattr(module, "__file__", None)
        if file is None or str(name).split(".")[0] in ("__main__", "tidewheel") or file.startswith(_INSTALLED):
            continue
        cloudpickle.register_pickle_by_value(module)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        # Asked for every object, so the usual answer comes first.
        if not isinstance(obj, type | FunctionType):
            # What says that a field has no default is told by its identity; a copy of it would be one.
            return "MISSING" if obj is dataclasses.MISSING else NotImplemented
        if isinstance(obj, type) and not _importable(obj):
            if _CACHE in vars(obj):
                delattr(obj, _CACHE)  # msgspec makes it again when it needs it.
            _resolve_annotations(obj)
            if isinstance(obj, _StructMeta):
                return _struct_parts(obj)
        return super().reducer_override(obj)


def _importable(kind: type) -> bool:
    """Tell whether a worker finds the class under its name, as cloudpickle will decide it."""
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
    """Replace annotations that are text by what they mean, as far as all names are known."""
    own = inspect.get_annotations(kind)
    if any(isinstance(annotation, str) for annotation in own.values()):
        try:
            hints = typing.get_type_hints(kind, include_extras=True)
        except Exception:
            return
        kind.__annotations__ = {name: hints[name] for name in own}


def _struct_parts(kind: Any) -> tuple[Any, ...]:
    """Return how to make a Struct again: its fields and settings at once, the rest when it is there.

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
    """Return what `msgspec.field` was given, or would have been."""
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
    """Make the class, once in a process: values that come later are of the class that is there."""
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
