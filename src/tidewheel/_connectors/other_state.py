"""The error text for output that a job published with another state than its current one."""

from __future__ import annotations


def job_of(stream: str) -> str:
    """Return the job of a stream: the stream itself, or the job whose fleet it belongs to.

    >>> job_of("orders"), job_of("orders/17")
    ('orders', 'orders')
    """
    return stream.partition("/")[0]


def other_state(job: str) -> str:
    """Explain why a sink has output with sequences that the job has not published, and say what to do.

    The most likely reason is a wrong state URL. Then the output is correct and must be kept.
    """
    if (fleet := job_of(job)) != job:
        return (
            f"the output belongs to nodes that have the state of {fleet!r} at another URL. Start this node with the "
            "--state of the "
            "fleet; a second fleet needs another job name or another sink. Do not delete the output: it belongs to "
            "the other nodes"
        )
    return (
        "the job has published with another state than this one. If the state URL is wrong, use the right one, and "
        "keep the "
        "output. If the state was deleted so that the job starts again, give the job or the sink another name, or "
        "also delete its output, with `tidewheel reset PROGRAM.py --output`"
    )
