"""The locations and names of a job's files. A name contains the sequence, run, task and attempt that wrote the file.

Below the state URL every job has a folder:

    <job>/chain/                 the commit chain
    <job>/state/                 state files: deltas, merged runs, snapshots; pages of manifests; reference tables
    <job>/staged/                output staged by tasks, not published yet
    <job>/pins/                  files to keep although no kept checkpoint refers to them
    <job>/cells/                 the job's cells, unless its program has them elsewhere
    <job>/program.json           the declaration of the newest run's program
    <job>/programs/              the source of programs, if the job keeps it

A file's *name* is its path below the job's folder. A job that shares another's files (a fork) refers to
them by a name that starts with "/": a path below the state URL.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from tidewheel.errors import ConfigError

CHAIN, STATE, STAGED, PINS = "chain", "state", "staged", "pins"
CELLS = "cells"
PROGRAM, PROGRAMS = "program.json", "programs"
DEFAULT_STATE = "file:.tidewheel"
"""The default state URL: in the working directory of the program."""

Suffix = Literal["delta", "snap", "run"]

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.")
_MAX_FOLDER = 200
_NUMBERED = re.compile(r"(?:state|staged)/(\d{20})-[^/].*")
_TOKEN = re.compile(r"[A-Za-z0-9_.]+")


@lru_cache(maxsize=4096)
def folder(stream_id: str) -> str:
    """Return the folder of a job or stream below the state URL; different names have different folders.

    Every byte that is not a letter, a digit, or one of `_-.`, and a leading dot, is written as `=` and two hex digits.

    >>> folder("orders"), folder("eu/orders")
    ('orders', 'eu=2Forders')
    """
    try:
        raw = stream_id.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"the name {stream_id!r} is not valid Unicode ({error.reason})") from None
    text = "".join(
        chr(byte) if byte in _PLAIN and not (at == 0 and byte == 0x2E) else f"={byte:02X}"
        for at, byte in enumerate(raw)
    )
    if not text or len(text) > _MAX_FOLDER:
        raise ConfigError(
            f"the name {stream_id!r} cannot be a folder: as {text!r} it has {len(text)} characters; "
            f"use a name of 1 to {_MAX_FOLDER}"
        )
    return text


def stream_of(name: str) -> str | None:
    """Return the stream that this `folder` belongs to; None if it is not a stream's folder.

    >>> stream_of("eu=2Forders"), stream_of("lost+found"), stream_of("=FF")
    ('eu/orders', None, None)
    """
    try:
        raw = re.sub(rb"=([0-9A-F]{2})", lambda match: bytes.fromhex(match[1].decode()), name.encode())
        stream = raw.decode()
        return stream if folder(stream) == name else None
    except (UnicodeError, ConfigError):
        return None


def state_file(sequence: int, run: str, task: int, attempt: int, suffix: Suffix, place: int = 0) -> str:
    """Return the name of a state file; `place` is its index among several files of the same attempt.

    >>> state_file(7, "r1", 3, 0, "delta"), state_file(7, "r1", 3, 0, "delta", 1)
    ('state/00000000000000000007-r1-3-0.delta', 'state/00000000000000000007-r1-3-0.1.delta')
    """
    return f"{STATE}/{_stem(sequence, run, task, attempt)}{f'.{place}' if place else ''}.{suffix}"


def staged_file(sequence: int, run: str, task: int, attempt: int, rest: str) -> str:
    """Return the name of a staged file; `rest` is the sink's own part of the name, such as `out.arrow`."""
    return f"{STAGED}/{_stem(sequence, run, task, attempt)}-{rest}"


def page_file(sequence: int, run: str, group: int, digest: int) -> str:
    """Return the name of the page that a commit writes for a group of shards.

    >>> page_file(7, "r1", 3, 0xAB)
    'state/00000000000000000007-r1-3-00000000000000ab.page'
    """
    return f"{STATE}/{_stem(sequence, run or 'none', group, 0).removesuffix('-0')}-{digest:016x}.page"


def table_file(sequence: int, run: str, digest: str, place: int) -> str:
    """Return the name of a part of a reference table.

    >>> table_file(7, "r1", "ab", 0)
    'state/00000000000000000007-r1-ab-0.table'
    """
    return f"{STATE}/{_stem(sequence, run, 0, 0).removesuffix('-0-0')}-{digest}-{place}.table"


def sequence_of(name: str) -> int | None:
    """Return the sequence for which a state or staged file was written, or `None` for any other name."""
    match = _NUMBERED.fullmatch(name)
    return None if match is None else int(match[1])


def path(stream_id: str, name: str) -> str:
    """Return the path below the state URL of a file that this job refers to by `name`.

    >>> path("orders", "state/1.delta"), path("copy", "/orders/state/1.delta")
    ('orders/state/1.delta', 'orders/state/1.delta')
    """
    return name[1:] if name.startswith("/") else f"{folder(stream_id)}/{name}"


def shared(stream_id: str, name: str) -> str:
    """Return the name by which other jobs at the same state URL refer to this job's file.

    >>> shared("orders", "state/1.delta")
    '/orders/state/1.delta'
    """
    return name if name.startswith("/") else f"/{path(stream_id, name)}"


def own(stream_id: str, name: str) -> str:
    """Return the name by which this job refers to a file that others refer to by `name`.

    >>> own("orders", "/orders/state/1.delta"), own("copy", "/orders/state/1.delta")
    ('state/1.delta', '/orders/state/1.delta')
    """
    return name.removeprefix(f"/{folder(stream_id)}/")


def _stem(sequence: int, run: str, task: int, attempt: int) -> str:
    if not 0 <= sequence < 10**20 or task < 0 or attempt < 0:
        raise ConfigError(
            f"a file name needs numbers from 0 on, not sequence {sequence}, task {task}, attempt {attempt}"
        )
    if not _TOKEN.fullmatch(run):
        raise ConfigError(f"the run token {run!r} cannot be in a file name; use letters, digits, '_' and '.'")
    return f"{sequence:020}-{run}-{task}-{attempt}"
