"""A node of a fleet as a process without Spark, with its real membership, chains and tasks.

Run as `python -m support.fleet_process NAME FOLDER CELLS INBOX LEASE`; it reports events as JSON lines.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

from support.fleet_nodes import counting
from tidewheel import cells
from tidewheel._engine.commit import SourceProgress
from tidewheel._engine.local_tasks import LocalTasks
from tidewheel._engine.task_layout import Layout
from tidewheel._operators.stateless.source import SourceOperator
from tidewheel._testing.memory import GivenSplit
from tidewheel._values.shape import ANY, to_columns
from tidewheel.fleet import open_inbox
from tidewheel.fleet._inbox import decode_events, limited
from tidewheel.fleet._inbox.source import InboxSource
from tidewheel.fleet._nodes.node import Node, NodeOptions
from tidewheel.sinks import files
from tidewheel.testing import MemoryRun

_POLL_S = 0.05
_EVENTS = 500


class InProcess:
    """Carries a node's data in this process."""

    spark = None

    def __init__(self, local: str, tell) -> None:
        self._local, self._tell = local, tell

    def start(self) -> None:
        pass

    def drive(self, job, plan, run):
        return _Driving(job, plan, run, self._local, self._tell)


class _Driving(MemoryRun):
    def __init__(self, job, plan, run, local: str, tell) -> None:
        self.job, self.plan, self.run, self._local, self._tell = job, plan, run, local, tell
        self.parallelism, self.partitions, self.clock = 2, 1, None
        self._tasks = LocalTasks(plan)
        self._stop = threading.Event()

    def stop(self) -> None:
        self._stop.set()

    def execute(self):
        source = next(n.operator.source for n in self.plan.nodes if isinstance(n.operator, SourceOperator))
        assert isinstance(source, InboxSource)
        try:
            self.run.begin()
            with open_inbox(source.url) as inbox:
                oldest = inbox.start()
                at = {shard: source.start.get(shard, oldest[shard]) for shard in source.shards}
                while not self._stop.is_set():
                    end = limited(inbox, at, inbox.end(list(at)), _EVENTS)
                    events = [json.loads(p) for stored in inbox.read(at, end) for p in decode_events(stored).payloads]
                    at = end
                    if events:
                        self._batch(events, end)
                    else:
                        self._stop.wait(_POLL_S)
        finally:
            self.run.release()
        return SimpleNamespace(stopped=True)

    def _batch(self, events, end) -> None:
        spec = self._spec(None)
        splits = [[(0, GivenSplit(to_columns(events, ANY)))]]
        found = self._tasks.reports(Layout(spec, range(len(self.plan.levels)), splits))
        position = {str(shard): at for shard, at in end.items()}
        self.run.commit(spec, found, "batch", None, SourceProgress(self.next_batch, {"in": position}))
        self._tell("batch", {"sequence": spec.sequence, "rows": len(events)})


def main() -> None:
    name, folder, where, inbox, lease = sys.argv[1:6]

    def tell(event, facts) -> None:
        print(json.dumps({"event": event, "node": name, "at": time.time(), **facts}), flush=True)

    job = counting(Path(folder), snapshot_every=6, collect_every=5, keep=2, grace="1 s")
    job.dead_letter("dead", files(f"{folder}/dead", format="json"))
    engine = InProcess(f"{folder}/local/{name}", tell)
    try:
        Node(job, engine, NodeOptions(name, where, inbox, float(lease), on_event=tell)).execute()
    except cells.CellError as error:
        tell("ended", {"error": str(error)})
        raise


if __name__ == "__main__":
    main()
