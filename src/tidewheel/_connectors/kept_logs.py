"""Reuse connections to logs between batches, because opening one takes longer than reading a small batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tidewheel._connectors.log_source import Log, Opener
from tidewheel._core import pickling

_KEPT_S = 30.0
"""How long an idle connection is considered usable."""
_MOST = 4
"""The maximum number of idle connections per process."""

_kept: dict[bytes, tuple[float, Log]] = {}
_keeping = False


def keep() -> None:
    """Keep connections open from now on. Workers call this; code that opens a log once does not."""
    global _keeping
    _keeping = True


@contextmanager
def opened(opener: Opener) -> Iterator[Log]:
    """Open a log or reuse an open one. It is closed after an error, or if connections are not kept."""
    known = pickling.dumps(opener) if _keeping else b""
    since, log = _kept.pop(known, (0.0, None))
    if log is not None and time.monotonic() - since > _KEPT_S:
        log.close()
        log = None
    if log is None:
        log = opener()
    try:
        yield log
    except BaseException:
        log.close()
        raise
    if not _keeping:
        log.close()
        return
    if len(_kept) == _MOST:
        _kept.pop(next(iter(_kept)))[1].close()
    _kept[known] = (time.monotonic(), log)
