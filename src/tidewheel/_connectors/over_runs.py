"""Finished runs of a fleet: a sink deletes their markers, and keeps one marker with the number of the last finished run.

The marker of a run tells a run that was paused and wakes up that its output is already published. A finished run has nothing
to publish: the fleet forgets a run only when all its commits are published and its chain has its last record. So one number
is enough for all finished runs, the *over marker*, which is stored like the marker of a run with the name `over`.

The over marker is raised before the markers of the runs are deleted. So a run that finds no marker of its own, and then reads
the over marker, either is finished or has not published yet. This check happens once per run, because later a marker exists.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidewheel._connectors.marker import Marker
from tidewheel._connectors.other_state import job_of
from tidewheel._connectors.sink import Publication
from tidewheel.errors import FencedError

_OVER = "over"


def streams_of(job: str, runs: Sequence[int]) -> list[str]:
    """Return the names under which the runs of a fleet publish."""
    return [f"{job}/{run}" for run in runs]


def over_stream(job: str) -> str:
    """Return the name of the over marker of a fleet.

    >>> over_stream("orders")
    'orders/over'
    """
    return f"{job}/{_OVER}"


def over_stream_of(stream: str) -> str | None:
    """Return the name of the over marker for a stream; None if the stream is a job outside of a fleet.

    >>> over_stream_of("orders/17"), over_stream_of("orders")
    ('orders/over', None)
    """
    job = job_of(stream)
    return None if job == stream else over_stream(job)


def over_marker(runs: Sequence[int]) -> Marker:
    """Return the over marker after the markers of these runs are deleted."""
    return Marker({max(runs): 0})


def is_over(stream: str, over: int) -> bool:
    """Return whether a stream belongs to a finished run; `over` is the number in the over marker.

    >>> is_over("orders/17", 17), is_over("orders/18", 17), is_over("orders", 17)
    (True, False, False)
    """
    run = stream.partition("/")[2]
    return run.isdigit() and int(run) <= over


def refuse_over(publication: Publication, over: int) -> None:
    """Raise a `FencedError` for a publication of a finished run."""
    if is_over(publication.job, over):
        raise FencedError(
            f"sink {publication.sink!r}: the publication for {publication.job!r} is rejected: the runs of this fleet "
            "up to number "
            f"{over} are finished and published. Either the node was paused for long, and will start another run; or "
            "the state of the fleet was deleted and the fleet started again: then give the job or the sink another name"
        )
