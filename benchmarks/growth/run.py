"""Measure how costs grow: each cost at three sizes, compared with its goal.

    python -m benchmarks.growth.run [empty …]

Each measurement is a file in this folder and runs in its own process, so that none is affected by the memory of another.
The last line is one JSON object.
"""

import argparse
import json
import subprocess
import sys

from benchmarks.growth.growth import Growth

MEASUREMENTS = ("cold", "empty", "hot", "lookup", "manifests", "offline", "output", "seen", "writes")


def measured(name: str) -> list[Growth]:
    """Run one measurement in its own process."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.growth.{name}"], stdout=subprocess.PIPE, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return [Growth(**{**each, "cases": {int(size): cost for size, cost in each["cases"].items()}}) for each in found]


def main() -> None:
    """Print a table, and as the last line one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*", help=f"these measurements instead of all: {', '.join(MEASUREMENTS)}")
    names = parser.parse_args().only or MEASUREMENTS
    if unknown := sorted(set(names) - set(MEASUREMENTS)):
        parser.error(f"there is no measurement named {', '.join(unknown)}")
    numbers: dict[str, float] = {}
    print(f"{'what':<58} {'sizes':<36} {'cost':<30} {'asked':>10}")
    for name in names:
        for growth in measured(name):
            sizes = " / ".join(f"{size:,}" for size in sorted(growth.cases))
            costs = " / ".join(f"{growth.cases[size]:,}" for size in sorted(growth.cases))
            verdict = f"<= {growth.limit:g}" + ("" if growth.number <= growth.limit else " !")
            print(f"{growth.title:<58} {f'{sizes} {growth.by}':<36} {f'{costs} {growth.unit}':<30} {verdict:>10}")
            numbers.update({growth.key: growth.number, **growth.more})
    print(json.dumps(numbers))


if __name__ == "__main__":
    main()
