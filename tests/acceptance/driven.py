"""Drive a whole job on Spark like a `StepTester` drives a step, so that one test runs on both."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from support.internals import states
from tidewheel import Job, KeyedStream, Message, RunOptions, Stream
from tidewheel._connectors.memory.iterable import IterableSource
from tidewheel._engine.stopped_job import StoppedJob
from tidewheel.codecs import msgpack_codec
from tidewheel.sinks import collect


class Growing(IterableSource):
    """Items that get more from run to run."""

    def declared(self, shape: Any) -> Growing:
        return self

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(self.items)


class OnSpark:
    """Each `send_all` is a run of the job that reads what was added, and goes on from where the last run ended."""

    def __init__(self, build: Callable[[KeyedStream], Stream], session: Any, folder: Path) -> None:
        self.session, self.folder, self.out = session, folder, collect()
        self.source = Growing([], None, 1)
        self.job = Job(f"driven-{secrets.token_hex(3)}", state=f"file://{folder}/state", n_shards=4)
        build(self.job.source("in", self.source, type=dict).key_by("key", "key", value="value")).sink("out", self.out)

    def send(self, key: Any, value: Any) -> list[Message]:
        return self.send_all([Message(key, value)])

    def send_all(self, messages: Iterable[Message]) -> list[Message]:
        self.source.items += [{"key": message.key, "value": message.value} for message in messages]
        return self._run("caught-up")

    def epoch(self, time: int) -> list[Message]:
        """End the job, which sends the epoch after all time."""
        return self._run("end")

    def _run(self, until: Any) -> list[Message]:
        before = len(self.out.records)
        options = RunOptions(spark=self.session, local=f"{self.folder}/local")
        self.job.run(until=until, parallelism=2, options=options)
        return [Message(record["key"], record["value"]) for record in self.out.records[before:]]

    def interrogate(self) -> set[Any]:
        with StoppedJob(self.job) as stopped:
            return stopped.interrogate()

    def collect(self, key: Any) -> dict[str, Any]:
        with StoppedJob(self.job) as stopped:
            taken = stopped.collect(key)
            stopped.commit()
        return {table: msgpack_codec().decode(raw) for table, raw in taken.items()}

    def acquire(self, key: Any, held: Mapping[str, Any]) -> None:
        with StoppedJob(self.job) as stopped:
            stopped.acquire(key, {table: msgpack_codec().encode(state) for table, state in held.items()})
            stopped.commit()

    def state(self, key: Any, operator: str) -> Any:
        with StoppedJob(self.job) as stopped:
            raw = states(stopped._run.store, stopped._run.head).get(operator, {}).get(key)
        return None if raw is None else msgpack_codec().decode(raw)
