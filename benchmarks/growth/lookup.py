"""Measure a look-up of a cold or unknown key: it waits for the store at most twice, whatever the number of the shard's parts.

The store answers each read after a fixed time, like an object store. The cost is how many of these times a look-up takes.
"""

import tempfile
import time
from pathlib import Path
from random import Random

from benchmarks.growth.growth import Growth, hand_over

from tidewheel._state.compaction import merge
from tidewheel._state.key_lookup import KeyLookup
from tidewheel._state.references import FileRef, ShardParts
from tidewheel._state.state_file import StateFileWriter

PARTS = (4, 16, 40)
KEYS_PER_PART = 5_000
ANSWER_S = 0.25


def reads(n_parts: int) -> tuple[float, float]:
    """Return the consecutive reads of a look-up with this number of parts: of an unknown cold key, and then of another one."""
    random = Random(n_parts)
    with tempfile.TemporaryDirectory() as folder:
        parts = ShardParts()
        for sequence in range(1, n_parts + 1):
            writer = StateFileWriter()
            keys = sorted({b"s%020d" % random.randrange(10**12) for _ in range(KEYS_PER_PART)})
            writer.add(0, "op", [(key, random.randbytes(80)) for key in keys])
            data, checksum = writer.finish()
            ref = FileRef(f"delta-{sequence}", len(data), checksum)
            Path(folder, ref.name).write_bytes(data)
            parts = merge(parts, writer.parts(ref, sequence).values())

        def read_range(name: str, start: int, length: int) -> bytes:
            time.sleep(ANSWER_S)
            with open(Path(folder, name), "rb") as file:
                file.seek(start)
                return file.read(length)

        lookup = KeyLookup(read_range)
        times = []
        for key in (b"s%020d" % (10**12 // 2), b"s%020d" % (10**12 // 3)):
            started = time.perf_counter()
            assert lookup.get(parts, 0, "op", key) is None
            times.append((time.perf_counter() - started) // ANSWER_S)
    return times[0], times[1]


if __name__ == "__main__":
    cases = {parts: reads(parts) for parts in PARTS}
    hand_over(
        Growth(
            "lookup_reads",
            "a look-up of an unknown key, cold: reads one after the other",
            "parts",
            "reads",
            {parts: cold for parts, (cold, _) in cases.items()},
            2,
            more={"lookup_reads_warm": max(warm for _, warm in cases.values())},
        )
    )
