"""Every metric there is: its name, kind, labels, and what it says. docs/operations.md has the same list.

All have the labels `job_name` and `node` too; `node` is empty where a job runs by itself. It is not called `job`: Prometheus
gives that name to its own list of targets.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

PREFIX = "tidewheel_"


Kind = Literal["counter", "gauge", "histogram", "info"]


class Metric(NamedTuple):
    """One metric. A counter's samples have `_total` behind its name."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


_ROWS: tuple[tuple[str, Kind, str, tuple[str, ...]], ...] = (
    # Operators.
    (
        "operator_rows_in",
        "counter",
        "Messages that reached an operator; those of a source are what it gave.",
        ("operator",),
    ),
    (
        "operator_rows_out",
        "counter",
        "Messages that left an operator; those of a sink are what it wrote.",
        ("operator",),
    ),
    ("operator_busy_seconds", "counter", "Time that an operator's own code took, over all tasks.", ("operator",)),
    ("operator_late_rows", "counter", "Messages that came after the clock had passed them.", ("operator",)),
    (
        "operator_dropped_rows",
        "counter",
        "Messages that no branch of a split wanted, and repeats that deduplicate dropped.",
        ("operator",),
    ),
    (
        "operator_dead_letters",
        "counter",
        "Payloads that did not decode, and records that went to the dead-letter sink.",
        ("operator",),
    ),
    ("operator_keys_changed", "counter", "Keys whose state changed.", ("operator",)),
    (
        "operator_state_keys",
        "gauge",
        "Keys that an operator holds.",
        ("operator",),
    ),
    (
        "operator_state_bytes",
        "gauge",
        "Bytes of an operator's state in local copies, as of the commit before the last.",
        ("operator",),
    ),
    # Batches.
    ("commits", "counter", "Commits of this process.", ("kind",)),
    ("events", "counter", "Records that the sources gave, over the whole life of the job.", ()),
    ("batch_seconds", "histogram", "From the planning of a batch to its output being visible.", ()),
    (
        "batch_step_seconds",
        "histogram",
        "The parts of that: offsets, read (waiting for the sources' rows), tasks, commit, publish; the rest is Spark's.",
        ("step",),
    ),
    ("batch_tasks", "gauge", "Tasks of the last batch: the parallelism, or 1 if it was small.", ()),
    ("parallelism", "gauge", "Tasks that a batch is divided among.", ()),
    ("last_commit_timestamp_seconds", "gauge", "When the last commit was made.", ()),
    ("last_commit_sequence", "gauge", "The number of the last commit.", ()),
    # Lag and time.
    ("source_rows_behind", "gauge", "Rows that a source holds and the job has not read.", ("source", "partition")),
    (
        "source_files_behind",
        "gauge",
        "Files that a source of files holds and the job has not read; their rows are not counted.",
        ("source", "partition"),
    ),
    (
        "source_seconds_behind",
        "gauge",
        "For how long the oldest of these rows has waited, to the nearest look.",
        ("source", "partition"),
    ),
    ("data_clock_timestamp_seconds", "gauge", "The clock of the data: the merged epoch of all inputs.", ()),
    ("data_clock_behind_seconds", "gauge", "How far that clock is behind the time of day.", ()),
    # State.
    (
        "state_skew_ratio",
        "gauge",
        "Keys of the largest shard, divided by the mean of all shards that hold any.",
        (),
    ),
    ("deltas_written", "counter", "Deltas of shards.", ()),
    ("delta_bytes", "counter", "Bytes of deltas.", ()),
    ("snapshots_written", "counter", "Snapshots of shards.", ()),
    ("snapshot_bytes", "counter", "Bytes of snapshots.", ()),
    ("caught_up_bytes", "counter", "Bytes of state files that local copies took in.", ()),
    ("local_disk_free_bytes", "gauge", "Room on the disk of the driver's local copies.", ()),
    ("local_disk_size_bytes", "gauge", "Size of that disk.", ()),
    # Sinks.
    ("sink_rows_published", "counter", "Rows that a sink made visible.", ("sink",)),
    ("sink_publish_seconds", "histogram", "How long a sink took to make a commit's rows visible.", ("sink",)),
    # The run.
    ("restarts", "counter", "Restarts from the last commit after a failure.", ()),
    ("failures", "counter", "Failures of batches or of the run.", ("error",)),
    ("fenced", "counter", "Times that another run took the job, or a shard, from this one.", ()),
    ("cell_version", "gauge", "The version of a cell that the last batch saw.", ("cell",)),
    ("shards_held", "gauge", "Shards that this process works on.", ()),
    ("inbox_backlog_rows", "gauge", "Events in a fleet's inbox that this node has yet to read.", ()),
    ("run_claimed", "gauge", "1 while a run has the job, 0 otherwise.", ()),
    (
        "run",
        "info",
        "The run that goes on: its token, its host and the version of Tidewheel.",
        ("run", "host", "version"),
    ),
)

METRICS = tuple(Metric(PREFIX + name, kind, text, labels) for name, kind, text, labels in _ROWS)
