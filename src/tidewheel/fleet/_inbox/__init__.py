"""Inboxes: a durable, ordered log of events for each shard, at a URL.

>>> import tempfile
>>> with open_inbox(tempfile.mkdtemp(), n_shards=4) as inbox:
...     inbox.n_shards, inbox.marks("nobody")
(4, {})
"""

from __future__ import annotations

from tidewheel._core.urls import Url
from tidewheel.errors import ConfigError
from tidewheel.fleet._inbox.base import Block, Inbox, Stored, lag, limited
from tidewheel.fleet._inbox.events import Events, decode_events, encode_events

__all__ = ["Block", "Events", "Inbox", "Stored", "decode_events", "encode_events", "lag", "limited", "open_inbox"]


def open_inbox(url: str | Url, n_shards: int | None = None) -> Inbox:
    """Open the inbox at a URL: `file:///abs`, `file:rel` or a plain path; `nats://host:4222,host:4222/name`.

    Create the inbox if it does not exist, which requires `n_shards`. Refuse an inbox with another number of shards.
    """
    url = Url(url)
    if url.scheme in ("", "file"):
        from tidewheel.fleet._inbox.file import FileInbox

        return FileInbox(url.reveal(), n_shards)
    if url.scheme in ("nats", "tls"):
        from tidewheel.fleet._inbox.with_nats.inbox import NatsInbox

        return NatsInbox(url, n_shards)
    raise ConfigError(f"the URL {url} has the unknown scheme {url.scheme!r}; an inbox can be at file: or nats:")
