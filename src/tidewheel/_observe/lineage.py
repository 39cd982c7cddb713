"""Lineage: OpenLineage events of a run, with the datasets that it reads and writes.

Off unless the environment configures the OpenLineage client. Events are sent by a thread of their own: a backend that is slow or
down costs events, never a batch.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.util
import logging
import os
import queue
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tidewheel._core.logs import logger
from tidewheel._core.text import text_of
from tidewheel._core.threads import BackgroundThread
from tidewheel._observe.redaction import beginning

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient

_LOG = logger(__name__)

_PRODUCER = "https://github.com/tidewheel/tidewheel"
_SETTINGS = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")
_MOST_WAITING = 100
_RUNNING_EVERY_S = 60.0
_LAST_S = 5.0
"""How long the end of a run waits for the last events to be sent."""
_LONGEST = 4 << 10

State = Literal["START", "RUNNING", "COMPLETE", "FAIL"]


class Dataset(NamedTuple):
    """A dataset by the naming rules of OpenLineage."""

    namespace: str
    name: str
    fields: tuple[tuple[str, str], ...] = ()
    """Names and types of its columns, as far as they are known."""


class Datasets(NamedTuple):
    """The datasets that a job reads and writes."""

    inputs: Sequence[Dataset]
    outputs: Sequence[Dataset]


def is_configured(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the environment has settings of the OpenLineage client.

    >>> is_configured({}), is_configured({"OPENLINEAGE_URL": "http://marquez:5000"})
    (False, True)
    >>> is_configured({"OPENLINEAGE_URL": "http://marquez:5000", "OPENLINEAGE_DISABLED": "true"})
    False
    """
    if environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    return any(name.startswith(_SETTINGS) for name in environment)


class Lineage:
    """The events of one run. No method raises or waits, but `close`, which gives the last events a few seconds."""

    def __init__(self, job: str, version: str, datasets: Datasets) -> None:
        """Begin: the run has its job."""
        self._job, self._version, self._datasets = job, version, datasets
        self._waiting: queue.Queue[tuple[State, float, str | None] | None] = queue.Queue(_MOST_WAITING)
        self._run_id = ""
        self._failed = self._reported = False
        self._told_at = float("-inf")
        self._client: OpenLineageClient | None = None
        self._thread = BackgroundThread(self._send_all, "tidewheel-lineage", self._broken)
        self._thread.start()
        self._tell("START")

    def committed(self) -> None:
        """Report that the run continues, at most once a minute."""
        now = time.monotonic()
        if now - self._told_at >= _RUNNING_EVERY_S:
            self._told_at = now
            self._tell("RUNNING")

    def failed(self, error: BaseException) -> None:
        """Report the error that ended the run."""
        self._failed = True
        self._tell("FAIL", beginning(f"{type(error).__name__}: {text_of(error)}", _LONGEST))

    def close(self) -> None:
        """Report the end of the run."""
        if not self._failed:
            self._tell("COMPLETE")
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(_LAST_S)

    def _tell(self, state: State, error: str | None = None) -> None:
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait((state, time.time(), error))

    def _broken(self, error: BaseException) -> Literal["go on"]:
        """Report the first failure, and go on with the next event."""
        if not self._reported:
            _LOG.warning(
                "job %r: an OpenLineage event cannot be sent: %s", self._job, beginning(text_of(error), _LONGEST)
            )
        self._reported = True
        return "go on"

    def _send_all(self) -> None:
        if importlib.util.find_spec("openlineage") is None:
            _LOG.warning(
                "job %r: the environment configures OpenLineage, but no events are sent: pip install 'tidewheel[lineage]'",
                self._job,
            )
            return
        # After an error, the thread begins here again.
        client = self._client = self._client or _client()
        while (event := self._waiting.get()) is not None:
            client.emit(self._event(*event))
        client.close(_LAST_S)

    def _event(self, state: State, at: float, error: str | None) -> Any:
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import error_message_run, job_type_job, processing_engine_run
        from openlineage.client.uuid import generate_new_uuid

        self._run_id = self._run_id or str(generate_new_uuid())
        about: dict[str, Any] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(self._version, "tidewheel")
        }
        if error is not None:
            about["errorMessage"] = error_message_run.ErrorMessageRunFacet(error, "python")
        return RunEvent(
            eventTime=datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(),
            eventType=RunState[state],
            run=Run(self._run_id, about),
            job=Job(
                os.environ.get("OPENLINEAGE_NAMESPACE", "default"),
                self._job,
                {"jobType": job_type_job.JobTypeJobFacet("STREAMING", "TIDEWHEEL", "JOB")},
            ),
            producer=_PRODUCER,
            inputs=[InputDataset(each.namespace, each.name, facets=_facets(each)) for each in self._datasets.inputs],
            outputs=[OutputDataset(each.namespace, each.name, facets=_facets(each)) for each in self._datasets.outputs],
        )


def _facets(dataset: Dataset) -> dict[str, Any]:
    from openlineage.client.facet_v2 import schema_dataset

    fields = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in dataset.fields]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields)} if fields else {}


def _client() -> OpenLineageClient:
    from openlineage.client import OpenLineageClient

    # At the level DEBUG, the client logs requests with their headers, and so its API key.
    logging.getLogger("openlineage.client").setLevel(logging.WARNING)
    return OpenLineageClient()
