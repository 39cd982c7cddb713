"""Declared types: their names, which are part of a cell's identity, and values as bytes and back.

A name is derived from the type as written (`float`, `dict[str, int]`, `int | None`, a class by its name without its
module), so that it is the same in every version of Python and in every program that declares the same type.
"""

from __future__ import annotations

import types
from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from tidewheel._cells.dict_keys import check_keys
from tidewheel._cells.errors import Encoding
from tidewheel._cells.type_description import described_type
from tidewheel._core.text import with_article
from tidewheel.errors import ConfigError, CorruptError

T = TypeVar("T")

_encode_as_it_is = msgspec.msgpack.Encoder().encode
_encode_sorted = msgspec.msgpack.Encoder(order="deterministic").encode


def _encode(value: Any) -> bytes:
    """Encode a value; equal values have equal bytes."""
    try:
        return _encode_sorted(value)
    except TypeError:
        # msgspec sorts text keys and rejects others.
        plain = msgspec.to_builtins(value, order="deterministic", builtin_types=(bytes, bytearray, datetime))
        return _encode_as_it_is(_sorted(plain))


def _sorted(plain: Any) -> Any:
    """Return plain data with dicts sorted by the bytes of their keys."""
    if isinstance(plain, dict):
        pairs = sorted(plain.items(), key=lambda pair: _encode_as_it_is(pair[0]))
        return {key: _sorted(value) for key, value in pairs}
    return list(map(_sorted, plain)) if isinstance(plain, list | tuple) else plain


def type_name(declared: Any) -> str:
    """Return the name of a declared type.

    >>> type_name(dict[str, int | None])
    'dict[str, int | None]'
    """
    if declared is None or declared is type(None):
        return "None"
    if declared is Any:
        return "Any"
    if declared is Ellipsis:
        return "..."
    origin, args = get_origin(declared), get_args(declared)
    if origin is Literal:
        return f"Literal[{', '.join(repr(arg) for arg in args)}]"
    if origin in (Union, types.UnionType):
        return " | ".join(type_name(arg) for arg in args)
    if origin is Annotated:
        return type_name(args[0])
    if origin is not None:
        return f"{type_name(origin)}[{', '.join(type_name(arg) for arg in args)}]"
    name = getattr(declared, "__name__", None)
    if not isinstance(name, str):
        raise ConfigError(
            f"{declared!r} cannot be the declared type of a cell; use a type such as float or dict[str, int]"
        )
    return name


class ValueCodec(Generic[T]):
    """Converts values of one declared type to bytes and back; equal values have equal bytes."""

    def __init__(self, declared: Any) -> None:
        try:
            self._decode = msgspec.msgpack.Decoder(declared).decode
        except TypeError as error:
            raise ConfigError(f"{declared!r} cannot be the declared type of a cell: {error}") from None
        check_keys(declared)

    def encode(self, value: T, where: str, name: str) -> bytes:
        """Return the bytes; raise `Encoding` with the value before anything is sent.

        The bytes represent the value as a reader will see it (in a float cell, 1 becomes 1.0), so that comparing bytes
        compares values.
        """
        if value is None:
            raise Encoding(f"None cannot be written to {where}: it means empty; use clear()")
        try:
            return _encode(self._fitted(value))
        except Exception as error:  # A class may validate its values and raise any error.
            refused = Encoding(
                f"{value!r:.200} cannot be written to {where}, which is declared as {name}: {_reason(error)}"
            )
            refused.value = value
            raise refused from None

    def _fitted(self, value: T) -> Any:
        """Return the value as a reader will see it, or raise."""
        return self._decode(_encode(value))

    def same(self, seen: T | None, encoded: bytes | None) -> bool:
        """Return whether a decoded value equals the value of these encoded bytes."""
        return (None if seen is None else _encode(seen)) == encoded

    def decode(self, data: bytes, where: str, name: str) -> T:
        """Return the value of these bytes."""
        try:
            value: T = self._decode(data)
            return value
        except Exception as error:
            raise Encoding(
                f"the value at {where} is not {with_article(name)}: {_reason(error)}; its writer declares another type"
            ) from error


class CheckedCodec(ValueCodec[Any]):
    """Converts values of a type that is only known by its description: plain numbers, texts, lists and dicts.

    Encoded values are checked. Decoded values are not: they are returned as stored.
    """

    def __init__(self, description: Any) -> None:
        super().__init__(Any)
        try:
            self._type = described_type(description)
        except (AttributeError, KeyError, NameError, RecursionError, TypeError, ValueError) as error:
            raise CorruptError(
                f"the stored description of a cell's type cannot be used ({_reason(error)}); start the job again, which stores it"
            ) from None

    def _fitted(self, value: Any) -> Any:
        # JSON values have text keys.
        return self._decode(_encode(msgspec.convert(self._decode(_encode(value)), self._type, str_keys=True)))


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, msgspec.MsgspecError) else f"{type(error).__name__} {error}".rstrip()
