"""The publisher that the test of at-least-once sinks kills.

Run as `python publishing_program.py FOLDER sink=mqtt|kafka|nats server=… place=… [most=5]`; it commits numbered records and
publishes commit after commit. With `most`, it waits after so many commits until it is killed. The folder records what is
committed and what is known to be published, like a job's chain.
"""

from __future__ import annotations

import pickle
import sys
import threading
from pathlib import Path

import pyarrow as pa

from tidewheel import sinks
from tidewheel._core import faults
from tidewheel._storage import open_store
from tidewheel.connectors import Publication
from tidewheel.testing.connectors import DrivenSink

COMMITS, SIZE = 30, 50

PUBLISHED = faults.declare("publishing.done", "a commit is published, and nobody knows")


class Place:
    def __init__(self, sink: str, server: str, place: str) -> None:
        self.name, self.server, self.place = sink, server, place

    def sink(self):
        if self.name == "mqtt":
            return sinks.mqtt(self.server, f"{self.place}/{{id}}")
        if self.name == "kafka":
            return sinks.kafka(self.server, self.place, key="id", exactly_once=False)
        return sinks.nats(self.server, f"{self.place}.out.{{id}}", atomic=False)


def committed(folder: Path, driven: DrivenSink, sequence: int) -> Publication:
    """Return a commit; what a life before has committed is not made again."""
    path = folder / f"committed-{sequence}"
    if not path.exists():
        first = (sequence - 1) * SIZE
        staged = driven.stage(sequence, pa.RecordBatch.from_pydict({"id": range(first, first + SIZE)}))
        unready = path.with_suffix(".new")
        unready.write_bytes(pickle.dumps(staged.tokens))
        unready.rename(path)
    tokens = pickle.loads(path.read_bytes())
    return Publication(open_store(driven.store), driven.job, driven.name, sequence, tokens, None)


def main() -> None:
    folder, options = Path(sys.argv[1]), dict(item.split("=", 1) for item in sys.argv[2:])
    left = int(options.pop("most", COMMITS + 1))
    driven = DrivenSink(Place(**options), store=f"file://{folder}/staged")
    for sequence in range(1, COMMITS + 1):
        known = folder / f"published-{sequence}"
        if not known.exists():
            driven.publish(committed(folder, driven, sequence))
            faults.point(PUBLISHED)
            known.touch()
            print(f"published {sequence}", flush=True)
            left -= 1
            if not left:
                threading.Event().wait()
    print("done", flush=True)


if __name__ == "__main__":
    main()
