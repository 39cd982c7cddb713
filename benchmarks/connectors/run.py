"""Compare connectors with the plain clients of their systems: the same reads and writes in the same run.

The benchmark starts each server on loopback. The last line is one JSON object with the speeds and their ratios to the plain
client: kafka_read, kafka_write, nats_read, nats_write, postgres_write and delta_write; the goal is at least 0.5 for each.
"""

from __future__ import annotations

import argparse
import importlib
import json

CONNECTORS = ("kafka", "nats", "postgres", "delta")
GOAL = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=200_000, help="records to read and to write")
    parser.add_argument("--only", choices=CONNECTORS, action="append", help="measure these connectors alone")
    arguments = parser.parse_args()
    found: dict[str, float] = {}
    for name in arguments.only or CONNECTORS:
        measured = importlib.import_module(f"benchmarks.connectors.{name}").measure(arguments.size)
        found |= measured
        print(name)
        for label, figure in measured.items():
            unit = (
                f"{figure:12,.0f} /s"
                if label.endswith("_s")
                else f"{figure:12.2f}{'' if figure >= GOAL else '  below the goal'}"
            )
            print(f"  {label:28} {unit}", flush=True)
    print(json.dumps({label: round(figure, 3) for label, figure in found.items()}))


if __name__ == "__main__":
    main()
