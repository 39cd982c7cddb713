"""Output in a sink that a job has published, but not with the state that it has now."""

from __future__ import annotations


def job_of(stream: str) -> str:
    """Return the job that a stream is of: itself, or the one whose fleet it is a run of.

    >>> job_of("orders"), job_of("orders/17")
    ('orders', 'orders')
    """
    return stream.partition("/")[0]


def other_state(job: str) -> str:
    """Return why a sink can hold output under the numbers of a job that has not published it, and the ways on.

    The likeliest reason is a state URL that is not the job's: its output is then good, and must stay.
    """
    if (fleet := job_of(job)) != job:
        return (
            f"the output is that of nodes which have the state of {fleet!r} elsewhere. Start this node with the --state of the "
            "fleet; a second fleet needs a job name or a sink of its own. Do not remove the output: it is the other nodes'"
        )
    return (
        "the job has published with another state than this one. If the state URL is wrong, give the right one, and leave the "
        "output as it is. If the state was removed and the job is to begin anew, give the job or the sink another name, or "
        "remove what it published as well, with `tidewheel reset PROGRAM.py --output`"
    )
