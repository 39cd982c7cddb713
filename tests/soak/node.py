"""A node of the soak's fleet: `support.fleet_process` with a clock that jumps. `python -m soak.node CLOCK NAME …`

It removes the remains of ended runs after five minutes, not a week: so an hour shows that the files do not pile up.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from soak import clock
from support import fleet_process
from tidewheel.fleet._nodes import node

_REMOVED_AFTER_S = 300.0

if __name__ == "__main__":
    clock.follow(Path(sys.argv.pop(1)))
    node.remove_ended_runs = partial(node.remove_ended_runs, after=_REMOVED_AFTER_S)  # type: ignore[assignment]
    fleet_process.main()
