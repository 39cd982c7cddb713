"""What the tests of several processes run in another process: `python state_process.py WHAT HISTORY COPIES`.

It says a word on standard output when it is where the test wants it, and goes on when it is told to.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from state_build import History, catch_up, contents

from tidewheel.state.local import LocalCopies


def main() -> None:
    what, history, copies = sys.argv[1:]
    copy = LocalCopies.at(copies, map_size=1 << 20).shard(0)
    print("open", flush=True)
    sys.stdin.readline()
    catch_up(copy, History.load(Path(history)))
    reader = copy.begin()
    if what == "read":
        print("reading", flush=True)
        sys.stdin.readline()
    print(hashlib.sha256(repr(sorted(contents(reader).items())).encode()).hexdigest(), flush=True)
    reader.close()


if __name__ == "__main__":
    main()
