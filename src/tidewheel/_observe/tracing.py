"""Traces: one per batch, with a span for each of its phases and tasks, if OpenTelemetry is installed.

The spans of phases and tasks are created when the batch is over, from existing measurements. So tracing costs a batch
almost nothing, and tasks do not need to support it.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tidewheel._core.text import text_of
from tidewheel._observe.redaction import beginning, ending
from tidewheel.errors import ConfigError

_NAME = "tidewheel"

_LONGEST = 64 << 10
"""The maximum length in characters of a recorded error."""


class Span(NamedTuple):
    """A part of a batch. Times are ns since 1970."""

    name: str
    began: int
    ended: int
    attributes: Mapping[str, Any] | None = None
    parts: Sequence[Span] = ()


class Batch:
    """The trace of the current batch. The code that runs the batch sets its attributes."""

    def __init__(self) -> None:
        self.spans: Sequence[Span] = ()
        self.attributes: dict[str, Any] = {}


class Tracing:
    """The traces of one run. Does nothing without OpenTelemetry or without a trace provider."""

    def __init__(self, job: str, run: str, node: str = "") -> None:
        """Use the attributes of the run for every trace."""
        self._attributes = {"tidewheel.job": job, "tidewheel.run": run}
        if node:
            self._attributes["tidewheel.node"] = node
        self._current: Any = None
        try:
            from opentelemetry import trace
        except ImportError:
            self._tracer: Any = None
        else:
            self._tracer = trace.get_tracer(_NAME)

    def trace_id(self) -> str | None:
        """Return the id of the batch's trace as text; None if there is none."""
        span = self._current
        return None if span is None else f"{span.get_span_context().trace_id:032x}"

    @contextmanager
    def batch(self, number: int | None) -> Iterator[Batch]:
        """Trace the work in the block; an error is recorded in the trace and raised again."""
        batch = Batch()
        span = None if self._tracer is None else self._tracer.start_span("batch", attributes=self._attributes)
        if span is None or not span.is_recording():
            yield batch
            return
        self._current = span
        if number is not None:
            span.set_attribute("tidewheel.batch", number)
        try:
            yield batch
        except BaseException as error:
            self._note(span, error)
            raise
        finally:
            self._current = None
            span.set_attributes(batch.attributes)
            for part in batch.spans:
                self._add(span, part)
            span.end()

    def _add(self, parent: Any, part: Span) -> None:
        from opentelemetry.trace import set_span_in_context

        inside = set_span_in_context(parent)
        span = self._tracer.start_span(part.name, inside, start_time=part.began, attributes=part.attributes)
        for each in part.parts:
            self._add(span, each)
        span.end(part.ended)

    def _note(self, span: Any, error: BaseException) -> None:
        from opentelemetry.trace import Status, StatusCode

        text = beginning(text_of(error), _LONGEST)
        # Not `record_exception`, which would not remove secrets.
        span.add_event(
            "exception",
            {
                "exception.type": type(error).__name__,
                "exception.message": text,
                "exception.stacktrace": ending("".join(traceback.format_exception(error)), _LONGEST),
            },
        )
        span.set_status(Status(StatusCode.ERROR, text))


def export_traces() -> None:
    """Send the traces of this process as configured by the environment (`OTEL_EXPORTER_OTLP_ENDPOINT` and similar)."""
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(f"traces need OpenTelemetry: pip install 'tidewheel[otel]' ({error})") from None
    provider = TracerProvider(resource=Resource.create({"service.name": _NAME}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
