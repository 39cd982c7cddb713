"""nats: a message for every record, in a JetStream stream."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from tidewheel._codecs.base import PayloadCodec, payload_codec
from tidewheel._codecs.json import json
from tidewheel._connectors.marker import Outrun
from tidewheel._connectors.messages import Form, MessagePartition
from tidewheel._connectors.nats.client import NatsConnection, nats_server
from tidewheel._connectors.nats.publishing import (
    Target,
    forget,
    found_target,
    largest_message,
    publish_by_ids,
    publish_in_batches,
)
from tidewheel._connectors.over_runs import over_stream, over_stream_of, streams_of
from tidewheel._connectors.sink import Guarantee, Publication, Sink, SinkPartition, Staging
from tidewheel._core.retry import patiently
from tidewheel._core.urls import Url
from tidewheel._time.duration import Duration, seconds


def nats(
    url: str,
    subject: str,
    *,
    codec: PayloadCodec | None = None,
    stream: str | None = None,
    marker: str | None = None,
    atomic: bool = True,
    credentials: str | None = None,
    timeout: Duration = "5 s",
    patience: Duration = "30 s",
) -> Nats:
    """Send a message for each record to `subject`, in which `{user}` is replaced by the value of that column.

    - `codec`: encodes the record; JSON by default. `codecs.raw("column")` sends one column unchanged.
    - `stream`: by default the stream that accepts the subject.
    - `marker`: the subjects for the markers of the sink, by default `tidewheel` after the first word of the subject
      (`orders.tidewheel.>` for `orders.out.{user}`). The stream must accept them; readers should exclude them.
    - `atomic`: exactly once, if the stream allows atomic batches (servers from 2.12 on; `nats stream edit NAME
      --allow-batch`). The server stores up to a thousand messages with a marker, all or none, and only if the previous marker
      is still the newest. A commit that is published again, at any later time, continues after its marker, and the server
      rejects a run that was paused and replaced. The stream must keep the newest marker: if an age limit deletes it while the
      job is stopped, the last commit is sent again.
    - `atomic=False`: at least once, for any stream. The id of a message consists of job, sink, sequence, task and position, so
      the server stores a repeated message once within its duplicate window (two minutes by default), and the marker identifies
      complete commits at any time. Messages of an incomplete commit come twice if it is published again after that window.
    - `patience`: how long to wait for a server that does not answer.
    - `url`, `credentials`, `timeout`: as for the source.
    """
    return Nats(
        url,
        Form(subject, json() if codec is None else payload_codec(codec), ".*>"),
        stream,
        marker,
        atomic,
        credentials,
        seconds(timeout, "the timeout of the sink nats"),
        seconds(patience, "patience of the sink nats"),
    )


class Nats(Sink):
    """Exactly once: atomic batches with a marker, each only if the marker before it is the newest."""

    guarantee: Guarantee = "exactly once"

    def __init__(
        self,
        url: str,
        form: Form,
        stream: str | None,
        marker: str | None,
        atomic: bool,
        credentials: str | None,
        timeout: float,
        patience: float,
    ) -> None:
        nats_server(url)
        self._url, self.form, self.atomic = Url(url), form.checked("subject"), atomic
        self._stream, self._marker = stream, marker or f"{form.pattern('*').partition('.')[0]}.tidewheel"
        self._credentials, self._timeout, self._patience = credentials, timeout, patience
        if not atomic:
            self.guarantee = "at least once"
        self._kept: dict[tuple[str, str], Target] = {}
        """By job and sink, the connection of the last publication, and the newest known marker."""

    def describe(self) -> str:
        return f"messages to {self.form.address} at {self._url}"

    def place(self) -> str:
        return f"NATS messages to {self.form.address}"

    def start(self, job: str) -> None:
        with self._connected() as connection:
            self._target(connection, job, "any")
            self.form = replace(self.form, largest=largest_message(connection))
        self.form.codec.prepare()

    def open(self, staging: Staging) -> SinkPartition:
        return MessagePartition(self.form, staging)

    def publish(self, publication: Publication) -> None:
        if publication.tokens:
            patiently(self._patience, lambda _: self._send(publication))

    def _send(self, publication: Publication) -> None:
        publish = publish_in_batches if self.atomic else publish_by_ids
        name = (publication.job, publication.sink)
        while True:
            # After any failure, the next attempt connects again and reads the marker again.
            target = self._kept.pop(name, None)
            connection = self._connected() if target is None else target.connection
            with contextlib.ExitStack() as unless_published, contextlib.suppress(Outrun):
                unless_published.enter_context(connection)
                target = target or self._target(connection, *name)
                publish(target, publication, self.form)
                self._kept[name] = target
                unless_published.pop_all()
                return
            # Another run was faster, or an answer was lost; the marker shows which.

    def forget(self, job: str, sink: str, runs: Sequence[int]) -> None:
        patiently(self._patience, lambda _: self._forget(job, sink, runs))

    def _forget(self, job: str, sink: str, runs: Sequence[int]) -> None:
        over, *markers = (self._subject(stream, sink) for stream in (over_stream(job), *streams_of(job, runs)))
        while True:
            with self._connected() as connection, contextlib.suppress(Outrun):
                forget(self._target(connection, job, sink), over, markers, runs)
                return

    def stop(self, job: str) -> None:
        for name in list(self._kept):
            if name[0] == job:
                self._kept.pop(name).connection.close()

    def _connected(self) -> NatsConnection:
        return NatsConnection(self._url, credentials=self._credentials, timeout=self._timeout)

    def _target(self, connection: NatsConnection, job: str, sink: str) -> Target:
        target = found_target(connection, self.form, self._stream, self._subject(job, sink), self.atomic)
        over = over_stream_of(job)
        return target if over is None else msgspec.structs.replace(target, over=self._subject(over, sink))

    def _subject(self, job: str, sink: str) -> str:
        return f"{self._marker}.{_word(job)}~{_word(sink)}"

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connections in the driver."""
        return {**self.__dict__, "_kept": {}}

    def __repr__(self) -> str:
        return f"nats({str(self._url)!r}, {self.form.address!r})"


def _word(name: str) -> str:
    """Return a name as part of one word of a subject; unequal names have unequal words.

    >>> _word("eu.orders~1")
    'eu=2Eorders=7E1'
    """
    return "".join(each if each.isalnum() or each in "_-" else f"={ord(each):02X}" for each in name)
