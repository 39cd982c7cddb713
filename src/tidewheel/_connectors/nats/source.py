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
    """Read a JetStream stream: all its messages, or those of some `subjects`, which may have wildcards.

    The columns are `subject`, `sequence`, `time` (when the server stored it), `headers` and `data`.

    - `start`: where a new job begins: "earliest", "latest" (messages from now on), a sequence, or a time with its zone. The
      job's checkpoints contain its position. It keeps no consumer on the server and acknowledges nothing. A batch that runs
      again reads the same messages.
    - `max_records`: the maximum number of sequences in a batch, including deleted ones and those of other subjects.
    - `tasks`: the maximum number of tasks that read a batch. Messages of one key are processed in order of their sequences.
    - `lost`: if the stream has deleted messages before the job read them, the job fails, or continues with the oldest message
      ("earliest"). Messages that were deleted individually, or by a limit per subject, are not reported. The stream must
      retain messages by limits.
    - `url`: `nats://user:password@host:4222,host:4222`; a user without a password is a token. With `tls:`, with `?ca=file` for
      your own certificate authority, or with `?cert=file&key=file` for a client certificate, the client uses TLS or does not
      connect.
    - `credentials`: the path of a `.creds` file. Driver and tasks need these files.
    - `timeout`: a request that the server does not answer is retried for four times this long.
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
