"""nats: the messages of a JetStream stream."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import get_args

from tidewheel._connectors.log_source import PartitionedSource
from tidewheel._connectors.nats.client import nats_server
from tidewheel._connectors.nats.log import NatsLogOpener, OnLost, Start
from tidewheel._connectors.nats.pull import SCHEMA
from tidewheel._core.urls import Url
from tidewheel._time.duration import Duration, seconds
from tidewheel.errors import ConfigError


def nats(
    url: str,
    stream: str,
    *,
    subjects: str | Sequence[str] = (),
    start: Start | int | datetime = "earliest",
    max_records: int | None = None,
    tasks: int = 4,
    lost: OnLost = "fail",
    credentials: str | None = None,
    timeout: Duration = "5 s",
) -> NatsSource:
    """Read a JetStream stream, all its messages or those of some `subjects`, which may have wildcards.

    The columns are `subject`, `sequence`, `time` (when the server stored it), `headers` and `data`. A job begins at
    `start`: "earliest", "latest" (what comes from now on), a sequence, or a time with its zone. From then on its position,
    a sequence of the stream, is kept with the job's own checkpoints; no consumer is kept at the server and nothing is
    acknowledged. On replay the same sequences are read again, and give the same messages.

    A batch covers at most `max_records` sequences, those of other subjects and deleted ones among them, and is read by up to
    `tasks` tasks. Order holds within a task; number one with `tasks=1`, or order by `sequence`.

    The stream must keep its messages by limits. Where it has let go of messages that the job has not read, the job fails,
    with both numbers; with `lost="earliest"` it goes on with the oldest that are there. Messages that are deleted one by one, or
    by a limit per subject, are not missed.

    `url` is `nats://user:password@host:4222,host:4222` (a user without a password is a token); with `tls:`, or `?ca=file` for
    an authority of one's own and `?cert=file&key=file` for a client's certificate, the connection is TLS or none is made.
    `credentials` is the path of a `.creds` file. Driver and tasks all need these files.

    A server that does not answer is asked again for four times `timeout`.
    """
    nats_server(url)
    if not stream or any(each in stream for each in ". *>/\\"):
        raise ConfigError(f"{stream!r} cannot name a stream: it has no blanks, dots, wildcards or slashes")
    if isinstance(start, str) and start not in get_args(Start):
        raise ConfigError(f"start is {' or '.join(get_args(Start))}, a sequence or a time, not {start!r}")
    if isinstance(start, int) and start < 1:
        raise ConfigError(f"the sequences of a stream begin at 1; start cannot be {start}")
    if isinstance(start, datetime) and start.tzinfo is None:
        raise ConfigError(f"start={start} has no zone; give it one, as in datetime(2026, 1, 31, tzinfo=UTC)")
    if lost not in get_args(OnLost):
        raise ConfigError(f"lost is {' or '.join(get_args(OnLost))}, not {lost!r}")
    wanted = (subjects,) if isinstance(subjects, str) else tuple(subjects)
    limit = seconds(timeout, "the timeout of the source nats")
    return NatsSource(NatsLogOpener(Url(url), stream, wanted, start, lost, credentials, limit), max_records, tasks)


class NatsSource(PartitionedSource):
    """A JetStream stream; offsets are sequences."""

    def __init__(self, opener: NatsLogOpener, max_records: int | None, tasks: int) -> None:
        super().__init__(opener, SCHEMA, max_records, tasks)
        self._where = f"stream {opener.stream} at {opener.url}"

    def describe(self) -> str:
        return self._where
