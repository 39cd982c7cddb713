"""A node's data on Spark: one session for all its runs, a query for each."""

from __future__ import annotations

import dataclasses

from pyspark.sql import SparkSession

from tidewheel._engine.plan import Plan
from tidewheel._engine.program_job import ProgramJob
from tidewheel._fleet.run import FleetRun
from tidewheel._spark.driver import Driver
from tidewheel._spark.masters import local_folder
from tidewheel._spark.options import RunOptions
from tidewheel._spark.session import session
from tidewheel._spark.warm_up import warm

TRIGGER = "500 milliseconds"
"""How often a node looks for events, unless told otherwise."""


class SparkEngine:
    """Runs a node's shards as queries of one Spark."""

    def __init__(self, node: str, options: RunOptions) -> None:
        """Take the node's name and how its queries are run."""
        # Nodes on one machine keep apart: one that is stopped in a write would hold up whoever takes its shards.
        local = f"{local_folder(options.local)}/node-{node}"
        self._options = dataclasses.replace(options, node=node, local=local, trigger=options.trigger or TRIGGER)
        self.spark: SparkSession

    def start(self) -> None:
        """Start Spark, and let it run something: the shards that come with joining wait for a first batch, which is slow."""
        self.spark = self._options.spark or session(self._options.master, self._options.conf)
        warm(self.spark)

    def drive(self, job: ProgramJob, plan: Plan, run: FleetRun) -> Driver:
        """Return the driver of a run."""
        return Driver(job, plan, dataclasses.replace(self._options, spark=self.spark), run)
