"""A node's data on Spark: one session for all its runs, a query for each."""

from __future__ import annotations

import dataclasses

from pyspark.sql import SparkSession

from tidewheel._engine.plan import Plan
from tidewheel._engine.program_job import ProgramJob
from tidewheel._observe.metrics import Metrics
from tidewheel._spark.driver import Driver
from tidewheel._spark.masters import local_folder
from tidewheel._spark.options import RunOptions
from tidewheel._spark.session import session
from tidewheel._spark.warm_up import warm
from tidewheel.fleet._nodes.run import FleetRun

EVERY = "500 milliseconds"
"""The default interval between a node's polls for events."""


class SparkEngine:
    """Runs a node's shards as queries of one Spark."""

    def __init__(self, node: str, options: RunOptions, metrics: Metrics | None = None) -> None:
        """Prepare the runs of a node with this name."""
        # Nodes on one machine keep apart: one that is stopped in a write would hold up whoever takes its shards.
        local = f"{local_folder(options.local)}/node-{node}"
        self._node, self._metrics = node, metrics
        self._options = dataclasses.replace(options, local=local, every=options.every or EVERY)
        self.spark: SparkSession

    def start(self) -> None:
        """Start Spark and run a warm-up query: the first batch would be slow without it, and the shards would wait for it."""
        self.spark = self._options.spark or session(self._options.master, self._options.conf)
        warm(self.spark)

    def drive(self, job: ProgramJob, plan: Plan, run: FleetRun) -> Driver:
        """Return the driver of a run."""
        options = dataclasses.replace(self._options, spark=self.spark)
        return Driver(job, plan, options, run, node=self._node, metrics=self._metrics)
