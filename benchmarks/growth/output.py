"""Measure the memory of the driver while the output of a commit passes through it.

The cost is the peak memory of the process above its memory when it began to publish. Another process has staged the output.
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pyarrow as pa
from benchmarks.growth.growth import Growth, hand_over

from tidewheel._connectors.sink import Publication, Sink, Staging
from tidewheel._storage import open_store
from tidewheel.sinks import delta, for_each

MEGABYTES = (30, 100, 300)
TASKS = 2
ROWS = 1000
VALUE_BYTES = 480


def sink_of(name: str, folder: str) -> Sink:
    """Return the sink: a table, or a function that does nothing but read like sinks of messages."""
    return delta(f"{folder}/table") if name == "delta" else for_each(lambda record: None)


def stage(name: str, folder: str, megabytes: int) -> None:
    """Stage the output, as tasks do."""
    tokens = []
    for task in range(TASKS):
        partition = sink_of(name, folder).open(
            Staging(open_store(f"file://{folder}/job"), "job", "out", 1, f"run-{task}-0")
        )
        for start in range(0, megabytes * 1_000_000 // TASKS // (VALUE_BYTES + 20), ROWS):
            values = [os.urandom(VALUE_BYTES // 2).hex() for _ in range(ROWS)]
            partition.write(pa.RecordBatch.from_pydict({"n": range(start, start + ROWS), "text": values}))
        tokens.append(partition.prepare())
    Path(folder, "tokens").write_bytes(msgspec.msgpack.encode(tokens))


def publish(name: str, folder: str, megabytes: int) -> None:
    """Publish the output, as the driver does."""
    tokens = msgspec.msgpack.decode(Path(folder, "tokens").read_bytes(), type=tuple[bytes, ...])
    sink = sink_of(name, folder)
    sink.start("job")
    before = peak_mb()
    sink.publish(Publication(open_store(f"file://{folder}/job"), "job", "out", 1, tokens, None))
    print(peak_mb() - before)


def peak_mb() -> float:
    """Return the peak memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def grown_mb(name: str, megabytes: int) -> float:
    """Return by how many MB a process grows that publishes this much output."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.growth.output"]
        subprocess.run([*command, "stage", name, folder, str(megabytes)], check=True)
        publishing = [*command, "publish", name, folder, str(megabytes)]
        done = subprocess.run(publishing, stdout=subprocess.PIPE, text=True, check=True)
        return round(float(done.stdout.split()[-1]), 1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        {"stage": stage, "publish": publish}[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        hand_over(
            *(
                Growth(
                    f"{name}_peak_mb",
                    f"a commit published by {name}: memory of the driver",
                    "MB of output",
                    "MB",
                    {size: grown_mb(name, size) for size in MEGABYTES},
                    600,
                )
                for name in ("for_each", "delta")
            )
        )
