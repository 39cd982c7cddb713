"""StateSpec: how a program describes the state of a step."""

from __future__ import annotations

import copy
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidewheel._operators.annotations import parameter
from tidewheel._state.codec import StateCodec, msgpack_codec
from tidewheel._state.stored_types import undeclared
from tidewheel._state.type_description import BUILT_IN_TYPES, StateType, describe, suggested, suggested_by
from tidewheel._values.records import is_record
from tidewheel.errors import ConfigError, GraphError

IMMUTABLE = (bool, int, float, str, bytes, type(None), frozenset)
"""The types of values that need no copy."""


@dataclass(frozen=True)
class StateSpec:
    """The initial state of a key, and how states are stored."""

    type: Any = None
    default: Any = None
    codec: StateCodec | None = None
    version: int = 1
    upgrade: Callable[[Any, int], Any] | None = None
    """Converts a state that an earlier version of the program stored."""
    hint: Any = None
    """The likely type of undeclared states. It creates no state and rejects none."""

    @property
    def stored_type(self) -> Any:
        """The declared type, or the type of the default, against which undeclared states are checked."""
        if self.type is not None:
            return self.type
        if self.hint is not None:
            return undeclared(self.hint) if is_record(self.hint) else Any
        first = typing.get_origin(self.default) or (
            self.default if isinstance(self.default, type) else type(self.default)
        )
        return undeclared(first) if first in BUILT_IN_TYPES else Any

    @property
    def description(self) -> StateType | None:
        """The description of the type in a manifest; None if a codec of the user defines the type."""
        if self.codec is not None:
            return None
        if self.type is not None:
            return describe(self.type)
        if self.hint is not None and is_record(self.hint):
            return suggested(describe(self.hint))
        return suggested_by(self.default if self.hint is None else self.hint)

    def resolved_codec(self) -> StateCodec:
        """Return the chosen codec, or msgpack for the type."""
        return self.codec or msgpack_codec(self.stored_type)

    def factory(self) -> Callable[[], Any]:
        """Return a function that creates the state of a new key.

        A callable default is called, and a mutable one is copied for each key. Without a default, the empty value of the
        declared type is used (0, "", an empty list). Without a declared type, or with a union type, the state starts as
        None.
        """
        default = self.default
        if default is None and self.type is not None:
            kind = typing.get_origin(self.type) or self.type
            if isinstance(kind, type) and kind not in (type(None), Any, types.UnionType):
                try:
                    kind()
                except TypeError:
                    raise GraphError(
                        f"there is no empty value of type {kind.__name__} for the state of a new key; pass default=, a "
                        f"{kind.__name__}, or state={kind.__name__} | None, which starts as None"
                    ) from None
                return kind
            return lambda: None
        if callable(default):
            return typing.cast(Callable[[], Any], default)
        if isinstance(default, IMMUTABLE):
            return lambda: default
        return lambda: copy.deepcopy(default)


def state_spec(
    function: Any,
    position: int,
    type_: Any,
    default: Any,
    codec: StateCodec | None,
    version: int,
    upgrade: Callable[[Any, int], Any] | None = None,
) -> StateSpec:
    """Return the description of the state; if no type is given, use the annotation of the function.

    Without either, a default that is a record is only a hint: it may mean "no value yet", and never be stored.
    """
    declared = type_ if type_ is not None else parameter(function, position)
    hint = _begun_record(default) if declared is None and codec is None else None
    return StateSpec(declared, default, codec, version, upgrade, hint)


def _begun_record(default: Any) -> Any:
    """Return the type of a default that is a record and can be stored, or None."""
    made = default if isinstance(default, type) else type(default)
    if not is_record(made):
        return None
    try:
        msgpack_codec(made)
    except ConfigError:
        return None
    return made
