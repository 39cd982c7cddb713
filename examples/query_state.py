"""Read the state of a job, and its history, from another program, without Spark.

    python examples/query_state.py

It first runs the job of `totals.py`, and then reads one key, all keys, and the list of checkpoints.
"""

from totals import job

from tidewheel import StoredJob


def main() -> None:
    """Run the job until it has read everything, then look at what it stored."""
    job.run(until="caught-up")
    stored = StoredJob("totals", state=job.state)
    ada = stored.get("total", "ada")
    print(f"ada: {ada.value} cents, as of checkpoint {ada.sequence}")
    print(f"all: {dict(sorted(stored.scan('total')))}")
    for checkpoint in stored.list():
        print(f"checkpoint {checkpoint.sequence}: {checkpoint.kind}")


if __name__ == "__main__":
    main()
