"""Decode the payloads of many messages, and report those that are invalid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidewheel._codecs.base import PayloadCodec
from tidewheel._core.text import cut, text_of, valid
from tidewheel.errors import ConfigError

_LONGEST = 10_000
"""The maximum number of characters of an error in a dead letter."""


def decode_all(
    codec: PayloadCodec, payloads: list[Any], check_transient: Callable[[Exception], None] = lambda _: None
) -> tuple[list[Any], dict[int, str]]:
    """Return the decoded records in order, and the errors of the other messages by position.

    A codec may use a service such as a schema registry: `check_transient` raises an error if the service is unavailable.
    """
    decode = (lambda message: codec.decode_message(*message)) if codec.message_columns else codec.decode
    decoded: list[Any] = []
    errors: dict[int, str] = {}
    rest = iter(payloads)
    while len(decoded) + len(errors) < len(payloads):
        try:
            decoded.extend(map(decode, rest))
        except ConfigError:
            raise  # No payload is the cause, such as a refused log-in at a schema registry.
        except Exception as error:
            check_transient(error)
            position = len(decoded) + len(errors)
            missing = payloads[position] is None
            errors[position] = (
                "the payload is null" if missing else f"{codec.name}: {type(error).__name__}: {_text(error)}"
            )
    return decoded, errors


def _text(error: Exception) -> str:
    return cut(valid(text_of(error)), _LONGEST)
