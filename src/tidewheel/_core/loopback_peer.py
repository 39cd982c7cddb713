"""Find the user at the other end of a loopback connection."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any


def peer_user(peer: tuple[Any, ...], own: tuple[Any, ...]) -> int | None:
    """Return the user id of the process that connected from `peer` to `own`; None if the system does not report it.

    Linux lists the owner of each socket in `/proc/net/tcp`. Addresses are IPv4, as of a server on 127.0.0.1.
    """
    wanted = [_entry(*peer[:2]), _entry(*own[:2])]
    try:
        with open("/proc/net/tcp") as table:
            next(table)
            return next((int(row[7]) for row in map(str.split, table) if row[1:3] == wanted), None)
    except (OSError, StopIteration):
        return None


def is_stranger(user: int | None) -> bool:
    """Return whether a user is known to be neither this one nor root."""
    return user not in (None, 0, os.geteuid())


def _entry(host: str, port: int) -> str:
    (number,) = struct.unpack("=I", socket.inet_aton(host))
    return f"{number:08X}:{port:04X}"
