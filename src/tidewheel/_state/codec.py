"""Codecs: convert state values to bytes and back.

The default is msgpack through `msgspec`: fast and typed, and decoding foreign state never runs foreign code.
"""

from __future__ import annotations

import contextlib
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from tidewheel._core.text import shortened, with_article
from tidewheel._state.stored_types import Fit, begun, same, stored_type
from tidewheel._state.tagged import RECORD, NotStorable, NotTheFirstType, decode, untagged
from tidewheel._values.records import is_record
from tidewheel.errors import ConfigError, CorruptError, StateError, StepError


class StateCodec(Protocol):
    """Converts values to bytes and back; `decode(encode(value))` equals `value`.

    The manifest records `name`, so that tools can decode state without the program that wrote it.
    """

    @property
    def name(self) -> str:
        """The registered name, such as `msgpack`."""
        ...

    def encode(self, value: Any) -> bytes:
        """Encode a value; raise `StepError` if it cannot be encoded."""
        ...

    def decode(self, data: bytes) -> Any:
        """Decode a value; raise `CorruptError` or `StateError` for invalid bytes."""
        ...


class BulkCodec(ABC):
    """A `StateCodec` with a faster way for many values at once."""

    name = "msgpack"

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Encode a value."""

    @abstractmethod
    def decode(self, data: bytes) -> Any:
        """Decode a value."""

    @abstractmethod
    def encode_all(self, values: list[Any]) -> list[bytes | None]:
        """Encode each value; None stays None."""

    @abstractmethod
    def decode_all(self, found: list[bytes | None]) -> list[Any]:
        """Decode each value; None stays None."""


def encode_all(codec: StateCodec, values: list[Any]) -> list[bytes | None]:
    """Encode each value; None stays None. Uses the codec's bulk method if it has one."""
    if isinstance(codec, BulkCodec):
        return codec.encode_all(values)
    return [None if value is None else codec.encode(value) for value in values]


def decode_all(codec: StateCodec, found: list[bytes | None]) -> list[Any]:
    """Decode each value; None stays None. Uses the codec's bulk method if it has one."""
    if isinstance(codec, BulkCodec):
        return codec.decode_all(found)
    return [None if raw is None else codec.decode(raw) for raw in found]


_NIL = msgspec.msgpack.encode(None)
_NOT_STORED = (NotStorable, TypeError, ValueError, OverflowError, RecursionError, UnicodeError, AttributeError)
"""The errors of encoding a value that msgpack does not support."""
_UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError, ValueError, TypeError, ArithmeticError, KeyError)
"""The errors of decoding damaged bytes, including extension types."""


class _Msgpack(BulkCodec):
    def __init__(self, declared: Any) -> None:
        self._type = declared
        self._encode = msgspec.msgpack.Encoder().encode
        try:
            untag = _untag(declared)
            self._decode = msgspec.msgpack.Decoder(declared, ext_hook=untag).decode
            self._decode_array: Callable[[bytes], list[Any]] = msgspec.msgpack.Decoder(
                list[declared | None], ext_hook=untag
            ).decode
        except (TypeError, NameError) as error:
            raise ConfigError(
                f"state of type {_called(declared)} cannot be stored as msgpack ({error}); use a dataclass, a "
                "msgspec.Struct or built-in types, or choose another codec for this step"
            ) from None
        self._stored = stored_type(declared)

    def encode(self, value: Any) -> bytes:
        try:
            fit = self._stored.fit((value,))
            data = self._encode(value if fit is Fit.NATIVE else self._stored.tagged(value))
        except NotTheFirstType as error:
            raise StepError(f"the new state is {with_article(_called(value.__class__))}, but {error}") from None
        except _NOT_STORED as error:
            raise self._refused(value, str(error)) from None
        if fit is Fit.UNKNOWN:
            self._check(value, data)
        return data

    def _check(self, value: Any, data: bytes) -> None:
        """Raise if decoding the bytes does not return the value."""
        try:
            stored = self._decode(data)
        except _UNREADABLE as error:
            raise self._refused(value, str(error)) from None
        if not same(value, stored):
            raise self._refused(value, f"{shortened(value, 200)} would come back as {shortened(stored, 200)}")

    def _refused(self, value: Any, reason: str) -> StepError:
        if self._type is Any or begun(self._type) is not None:
            return StepError(
                f"a state value of type {_called(value.__class__)} cannot be stored as msgpack ({reason}); keep built-in "
                "types, declare the state's type, or choose another codec for this step"
            )
        return StepError(
            f"a state value of type {_called(value.__class__)} cannot be stored as msgpack of the declared type "
            f"{_called(self._type)} ({reason}); return such a value, declare what the state is, or choose another codec for "
            "this step"
        )

    def decode(self, data: bytes) -> Any:
        try:
            return self._decode(data)
        except msgspec.ValidationError as error:
            with contextlib.suppress(*_UNREADABLE):
                # The type was declared after this state was stored: until then, tags recorded what msgpack alone would
                # lose.
                return msgspec.convert(decode(data), self._type)
            raise StateError(
                f"stored state does not fit the declared type {_called(self._type)} ({error}); give new fields a "
                "default, declare the type that the state was written with, or raise version= and give upgrade="
            ) from None
        except _UNREADABLE as error:
            raise CorruptError(
                f"{len(data)} bytes of state are not msgpack ({error}); was another codec in use?"
            ) from None

    def encode_all(self, values: list[Any]) -> list[bytes | None]:
        encode, stored = self._encode, self._stored
        try:
            some_dropped = type(None) in set(map(type, values))
            fit = stored.fit([value for value in values if value is not None] if some_dropped else values)
            if fit is Fit.NATIVE and not some_dropped:
                return list(map(encode, values))
            if fit is Fit.NATIVE:
                return [None if value is None else encode(value) for value in values]
            if fit is Fit.TAGGED:
                return [None if value is None else encode(stored.tagged(value)) for value in values]
        except _NOT_STORED:
            pass
        return [None if value is None else self.encode(value) for value in values]

    def decode_all(self, found: list[bytes | None]) -> list[Any]:
        # Decode one array of all values at once, which takes a third of the time of single calls.
        array = b"".join([b"\xdd", len(found).to_bytes(4, "big"), *[_NIL if raw is None else raw for raw in found]])
        try:
            return self._decode_array(array)
        except _UNREADABLE:
            return [None if raw is None else self.decode(raw) for raw in found]

    def __reduce__(self) -> tuple[Callable[[Any], StateCodec], tuple[Any]]:
        return msgpack_codec, (self._type,)

    def __repr__(self) -> str:
        return f"msgpack_codec({_called(self._type)})"


def _untag(declared: Any) -> Callable[[int, memoryview], Any]:
    """Return the decoder of extension types for a state of this type."""
    begins = begun(declared)
    if begins is None or not is_record(begins.type):
        return untagged
    record = msgpack_codec(begins.type)
    return lambda code, data: record.decode(bytes(data)) if code == RECORD else untagged(code, data)


class _Pickle:
    name = "pickle"

    def encode(self, value: Any) -> bytes:
        try:
            return pickle.dumps(value, protocol=5)
        except Exception as error:
            raise StepError(
                f"a state value of type {_called(value.__class__)} cannot be pickled ({error}); keep open files, "
                "locks and connections out of state"
            ) from error

    def decode(self, data: bytes) -> Any:
        try:
            return pickle.loads(data)
        except Exception as error:
            raise CorruptError(
                f"{len(data)} bytes of state do not unpickle ({error}); is the class that they name still where it was?"
            ) from error

    def __repr__(self) -> str:
        return "pickle_codec()"


def msgpack_codec(type: Any = Any) -> StateCodec:
    """Return the codec for values of `type`. Values are decoded with equal value and type, or encoding raises.

    `Any` supports the built-in types, dates and times, `Decimal`, `UUID` and `Row`, at any depth. Records and enums
    must be declared: state never names the class to create.

    >>> codec = msgpack_codec(tuple[int, str])
    >>> codec.decode(codec.encode((1, "a")))
    (1, 'a')
    """
    return _Msgpack(type)


def pickle_codec() -> StateCodec:
    """Return the pickle codec: it supports any Python value, but decoding can run arbitrary code.

    Only the program that chose it decodes it; tools that read state refuse it (see `codec_named`).
    """
    return _Pickle()


_REGISTRY: dict[str, Callable[[], StateCodec]] = {"msgpack": msgpack_codec}
_REFUSED = {"pickle": "decoding it would run code from the state"}


def register_codec(name: str, make: Callable[[], StateCodec]) -> None:
    """Register a custom codec under the name that manifests record; a name can be used only once."""
    if name in _REGISTRY or name in _REFUSED:
        raise ConfigError(f"a codec named {name!r} exists already; choose another name")
    _REGISTRY[name] = make


def codec_named(name: str) -> StateCodec:
    r"""Return the codec that a manifest names, for tools; never one whose decoding can run code.

    >>> codec_named("msgpack").decode(b"\x07")
    7
    """
    if name in _REFUSED:
        raise StateError(
            f"the codec {name!r} is not opened here: {_REFUSED[name]}; only the program that wrote the state may "
            "read it"
        )
    try:
        return _REGISTRY[name]()
    except KeyError:
        known = ", ".join(sorted(_REGISTRY))
        raise StateError(
            f"the state was written with the codec {name!r}, which is not known here (known: {known}); "
            "import the module that calls register_codec for it"
        ) from None


def _called(type: Any) -> str:
    return getattr(type, "__qualname__", None) or repr(type)
