"""Runs of a fleet that are over: a place lets go of their markers, and keeps one that says up to which run all are over.

A marker tells a run that was paused, and wakes up, that its output is there. A run that is over has nothing to publish: the
fleet lets go of it when everything it had committed is published, and its last record is in its chain. So one number
does for all of them, the *over marker*, kept like the marker of a run that is called `over`.

It is raised before the markers go. So whoever finds no marker of its run, and looks at the over marker after that, finds its
run over, or has not published yet. Only where there is no marker is this looked at: once in the life of a run.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidewheel._connectors.marker import Marker
from tidewheel._connectors.other_state import job_of
from tidewheel._connectors.sink import Publication
from tidewheel.errors import FencedError

_OVER = "over"


def streams_of(job: str, runs: Sequence[int]) -> list[str]:
    """Return the names under which runs of a fleet publish."""
    return [f"{job}/{run}" for run in runs]


def over_stream(job: str) -> str:
    """Return the name of the over marker of a fleet.

    >>> over_stream("orders")
    'orders/over'
    """
    return f"{job}/{_OVER}"


def over_stream_of(stream: str) -> str | None:
    """Return the name of the over marker that counts for a stream; None if it is a job that runs by itself.

    >>> over_stream_of("orders/17"), over_stream_of("orders")
    ('orders/over', None)
    """
    job = job_of(stream)
    return None if job == stream else over_stream(job)


def over_marker(runs: Sequence[int]) -> Marker:
    """Return the over marker of a place that lets go of the markers of these runs."""
    return Marker({max(runs): 0})


def is_over(stream: str, over: int) -> bool:
    """Tell whether a stream is that of a run which is over; `over` is the number that the over marker has.

    >>> is_over("orders/17", 17), is_over("orders/18", 17), is_over("orders", 17)
    (True, False, False)
    """
    run = stream.partition("/")[2]
    return run.isdigit() and int(run) <= over


def refuse_over(publication: Publication, over: int) -> None:
    """Refuse a publication of a run that is over, with a `FencedError`."""
    if is_over(publication.job, over):
        raise FencedError(
            f"sink {publication.sink!r}: nothing more is published for {publication.job!r}: the runs of this fleet up to number "
            f"{over} are over, and what they committed is published. Either the node slept for long, and begins another run; or "
            "the state of the fleet was removed and began anew: then give the job or the sink another name"
        )
