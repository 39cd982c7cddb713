"""The credentials that a writer stores with a value, and that readers check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias


class Presented(NamedTuple):
    """The data that came with a value: a ticket, a proof that it is the writer's own, and the bytes signed for that proof."""

    ticket: str | None
    proof: bytes | None
    signed: bytes


Validator: TypeAlias = Callable[[Presented], None]
"""Raises `TicketRefused`, with the reason, if a ticket is not accepted."""


class Ticket:
    """A writer's ticket, with its private key (Ed25519) if the ticket was issued for one."""

    def __init__(self, text: str, key: Any = None) -> None:
        self.text = text
        self._key = None if key is None else _private_key(key)

    def prove(self, signed: bytes) -> bytes | None:
        """Sign the written bytes, if there is a key."""
        if self._key is None:
            return None
        signature: bytes = self._key.sign(signed)
        return signature


def _private_key(key: Any) -> Any:
    if isinstance(key, str | bytes):
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        return load_pem_private_key(key.encode() if isinstance(key, str) else key, None)
    return key
