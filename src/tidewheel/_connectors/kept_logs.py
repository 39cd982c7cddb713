"""Connections to logs that a process keeps from one batch to the next: opening one takes longer than reading a small batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tidewheel._connectors.log_source import Log, Opener
from tidewheel._core import pickling

_KEPT_S = 30.0
"""How long a connection that nobody uses counts as good."""
_MOST = 4
"""How many a process keeps."""

_kept: dict[bytes, tuple[float, Log]] = {}
_keeping = False


def keep() -> None:
    """Keep connections from now on. A worker does; whoever opens a log for once does not."""
    global _keeping
    _keeping = True


@contextmanager
def opened(opener: Opener) -> Iterator[Log]:
    """Give an open log; after an error, or where nothing is kept, it is closed."""
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
