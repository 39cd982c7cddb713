"""The other process of tests with several processes: `python -m support.state_process WHAT HISTORY COPIES`.

It prints a word when it reaches the requested point, and continues when the test writes a line.
"""

from __future__ import annotations

import hashlib
import resource
import sys
from pathlib import Path

from support.state_build import History, catch_up, contents
from tidewheel._state.local_copies import CopyLimits, LocalCopies
from tidewheel.errors import LocalDiskFull, StateError


def main() -> None:
    what, history, folder = sys.argv[1:]
    copies = LocalCopies.at(folder, CopyLimits(map_size=1 << 20))
    copy = copies.shard(0)
    print("open", flush=True)
    sys.stdin.readline()
    if what == "open many":
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        print([copies.shard(number).applied for number in range(1, 30)], flush=True)
        return
    if what == "fill the disk":
        # The kernel refuses to write past this size, as it refuses to write to a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        catch_up(copy, History.load(Path(history)))
    except (StateError, LocalDiskFull) as error:
        print(error, flush=True)
        return
    reader = copy.begin()
    if what == "read":
        print("reading", flush=True)
        sys.stdin.readline()
    print(hashlib.sha256(repr(sorted(contents(reader).items())).encode()).hexdigest(), flush=True)
    reader.close()


if __name__ == "__main__":
    main()
