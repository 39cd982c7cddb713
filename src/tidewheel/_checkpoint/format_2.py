"""Upgrade manifests of format 2, which contained all parts and a table of files."""

from __future__ import annotations

from typing import Any

import msgspec

from tidewheel._checkpoint.pages import page_count

_N_SHARDS, _FILES, _SHARDS, _DRIVER, _FLEET = 15, 21, 22, 23, -1

_encode = msgspec.msgpack.Encoder().encode


def upgraded(body: bytes) -> bytes:
    """Convert a body of format 2 to format 3; raise `msgspec.DecodeError` if it is invalid."""
    fields = msgspec.msgpack.decode(body)
    try:
        files = fields[_FILES]
        if len({name for name, _, _ in files}) != len(files):
            raise msgspec.DecodeError("files: a name is there twice")
        slots: list[list[Any]] = [[] for _ in range(page_count(fields[_N_SHARDS]))]
        for shard, parts in fields[_SHARDS]:
            slots[shard % len(slots)].append((shard, -1, _parts(parts, files)))
        fields[_SHARDS] = [(None, slot) for slot in slots]
        fields[_DRIVER] = _parts(fields[_DRIVER], files)
        if fields[_FLEET] is not None:
            held, revoked, *rest = fields[_FLEET]
            taken = [(shard, (*who, _parts(parts, files))) for shard, (*who, parts) in revoked]
            fields[_FLEET] = (held, taken, *rest)
        del fields[_FILES]
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise msgspec.DecodeError(f"it is not of format 2: {error}") from None
    return _encode(fields)


def _parts(parts: Any, files: list[Any]) -> tuple[Any, list[Any]]:
    snapshot, deltas = parts
    return None if snapshot is None else _part(snapshot, files), [_part(delta, files) for delta in deltas]


def _part(part: Any, files: list[Any]) -> tuple[Any, ...]:
    position, *rest = part
    if position < 0:
        raise IndexError(position)
    return files[position], *rest
