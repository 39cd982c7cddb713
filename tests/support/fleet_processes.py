"""A fleet of real processes without Spark, which would only add time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from support.fleet_nodes import Fleet
from support.waiting import eventually

TESTS = Path(__file__).resolve().parents[1]
LEASE = 5.0


class Processes:
    """Nodes that are processes, and what they share. `node_cells`: the nodes reach the cells by another URL."""

    def __init__(
        self, folder: Path, cells: str, inbox: str, *, node_cells: str | None = None, lease: float = LEASE
    ) -> None:
        self.folder, self.inbox, self.lease = folder, inbox, lease
        self.cells = node_cells or cells
        self.shared = Fleet(folder, cells=cells, inbox=inbox)
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        arguments = [name, str(self.folder), self.cells, self.inbox, str(self.lease)]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.nodes[name] = subprocess.Popen(
                [sys.executable, "-m", "support.fleet_process", *arguments],
                cwd=TESTS,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def told(self, name: str, event: str, after: float = 0.0) -> list[dict]:
        lines = (self.folder / f"{name}.log").read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith('{"event"')]
        return [said for said in found if said["event"] == event and said["at"] > after]

    def wait(self, condition: Callable[[], object], what: str) -> None:
        try:
            eventually(condition, what)
        except AssertionError as error:
            logs = "".join(f"{path.name}:\n{path.read_text()[-1500:]}\n" for path in self.folder.glob("*.log"))
            raise AssertionError(f"{error}\n{logs}") from None

    def wait_for(self, name: str, event: str, after: float = 0.0) -> dict:
        self.wait(lambda: self.told(name, event, after), f"{event} of {name}")
        return self.told(name, event, after)[0]

    def signal(self, name: str, number: int) -> None:
        os.killpg(self.nodes[name].pid, number)

    def close(self) -> None:
        for process in self.nodes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.shared.close()
