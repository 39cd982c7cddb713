"""A node of the soak's fleet: `support.fleet_process` with a clock that jumps. `python -m soak.node CLOCK NAME …`"""

from __future__ import annotations

import sys
from pathlib import Path

from soak import clock
from support import fleet_process

if __name__ == "__main__":
    clock.follow(Path(sys.argv.pop(1)))
    fleet_process.main()
