"""The list of all metrics: name, kind, labels and meaning. docs/operations.md has the same list.

All metrics also have the labels `job_name` and `node`; `node` is empty if the job does not run in a fleet. The label is not
called `job`, because Prometheus uses that name for its own list of targets.
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
    # Steps.
    (
        "step_rows_in",
        "counter",
        "Messages that reached a step; for a source, the records that it read.",
        ("step",),
    ),
    (
        "step_rows_out",
        "counter",
        "Messages that left a step; for a sink, the rows that it wrote.",
        ("step",),
    ),
    ("step_busy_seconds", "counter", "Time spent in a step's own code, in all tasks together.", ("step",)),
    (
        "step_late_rows",
        "counter",
        "Messages that arrived after the clock had passed their timestamps.",
        ("step",),
    ),
    (
        "step_dropped_rows",
        "counter",
        "Messages that no branch of a split took, duplicates, and records that an inner lookup found no row for.",
        ("step",),
    ),
    (
        "step_dead_letters",
        "counter",
        "Payloads that could not be decoded, and records that went to the dead-letter sink.",
        ("step",),
    ),
    ("step_failed_expectations", "counter", "Records that do not meet an expectation.", ("step",)),
    ("step_calls", "counter", "Calls that a map_async step made, repeated ones included.", ("step",)),
    ("step_call_failures", "counter", "Calls of a map_async step that failed or took too long.", ("step",)),
    ("step_call_seconds", "counter", "The durations of all calls of a map_async step.", ("step",)),
    ("step_keys_changed", "counter", "Keys whose state changed.", ("step",)),
    (
        "step_state_keys",
        "gauge",
        "Keys with state of a step.",
        ("step",),
    ),
    (
        "step_state_bytes",
        "gauge",
        "Bytes of a step's state in local copies, as of the commit before the last.",
        ("step",),
    ),
    # Batches.
    ("commits", "counter", "Commits of this process.", ("kind",)),
    ("events", "counter", "Records read from the sources, over the whole life of the job.", ()),
    ("batch_seconds", "histogram", "Time from planning a batch until its output is visible.", ()),
    (
        "batch_phase_seconds",
        "histogram",
        "Time of each phase: offsets, read (waiting for the sources' rows), tasks, commit, publish; the rest is Spark's.",
        ("phase",),
    ),
    ("batch_tasks", "gauge", "Tasks of the last batch: the parallelism, or 1 if the batch was small.", ()),
    ("parallelism", "gauge", "Number of tasks that share a batch.", ()),
    ("last_commit_timestamp_seconds", "gauge", "Time of the last commit.", ()),
    ("last_commit_sequence", "gauge", "Sequence number of the last commit.", ()),
    # Lag and time.
    ("source_rows_behind", "gauge", "Rows in a source that the job has not read.", ("source", "partition")),
    (
        "source_files_behind",
        "gauge",
        "Files in a source that the job has not read; their rows are not counted.",
        ("source", "partition"),
    ),
    (
        "source_seconds_behind",
        "gauge",
        "How long the oldest unread row or file has waited, when last checked.",
        ("source", "partition"),
    ),
    ("data_clock_timestamp_seconds", "gauge", "Clock of the data: the merged epoch of all inputs.", ()),
    ("data_clock_behind_seconds", "gauge", "How far the clock of the data is behind the current time.", ()),
    # State.
    (
        "state_skew_ratio",
        "gauge",
        "Keys of the largest shard, divided by the mean of all shards that have keys.",
        (),
    ),
    ("deltas_written", "counter", "Deltas of shards.", ()),
    ("delta_bytes", "counter", "Bytes of deltas.", ()),
    ("snapshots_written", "counter", "Snapshots of shards.", ()),
    ("snapshot_bytes", "counter", "Bytes of snapshots.", ()),
    ("caught_up_bytes", "counter", "Bytes of state files applied to local copies.", ()),
    ("shard_visits", "counter", "Shards with state that tasks opened.", ()),
    ("stale_shard_visits", "counter", "Of these, shards without an up-to-date local copy on the host of the task.", ()),
    ("local_disk_free_bytes", "gauge", "Free space on the disk with the driver's local copies.", ()),
    ("local_disk_size_bytes", "gauge", "Size of that disk.", ()),
    # Sinks.
    ("sink_rows_published", "counter", "Rows that a sink made visible.", ("sink",)),
    ("sink_publish_seconds", "histogram", "Time that a sink took to make the rows of a commit visible.", ("sink",)),
    # The run.
    ("restarts", "counter", "Restarts from the last commit after a failure.", ()),
    ("failures", "counter", "Failures of batches or of the run.", ("error",)),
    ("fenced", "counter", "Number of times that another run took over the job, or a shard, from this run.", ()),
    ("cell_version", "gauge", "Version of a cell that the last batch used.", ("cell",)),
    ("table_version", "gauge", "Version of a reference table that the last batch used.", ("table",)),
    ("table_rows", "gauge", "Rows of that version.", ("table",)),
    (
        "table_refresh_failures",
        "counter",
        "Refreshes of a table that failed; its last version stays in use.",
        ("table",),
    ),
    ("shards_held", "gauge", "Shards that this process owns.", ()),
    ("inbox_backlog_rows", "gauge", "Events in a fleet's inbox that this node has not read.", ()),
    ("run_claimed", "gauge", "1 while a run owns the job, 0 otherwise.", ()),
    (
        "run",
        "info",
        "The current run: its token, its host and the version of Tidewheel.",
        ("run", "host", "version"),
    ),
)

METRICS = tuple(Metric(PREFIX + name, kind, text, labels) for name, kind, text, labels in _ROWS)
