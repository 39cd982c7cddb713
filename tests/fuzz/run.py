"""Fuzz the targets one after the other, guided by coverage: `make fuzz SECONDS=30`, or `make fuzz TARGET=manifest`.

Each target runs in a process of its own. What it fails on is kept in a file, whose name libFuzzer prints; the process ends
with another status than 0 then.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_LONGEST = 4096
_MEMORY_MB = 1500


def fuzz(name: str, seconds: int, corpus: Path) -> None:
    """Fuzz one target in this process; never return."""
    import atheris

    with atheris.instrument_imports(include=["tidewheel"]):
        from fuzz.targets import TARGETS
        from fuzz.trial import attempt
    target = TARGETS[name]
    for number, example in enumerate(target.examples()):
        (corpus / str(number)).write_bytes(example)
    limits = [f"-max_total_time={seconds}", f"-max_len={_LONGEST}", f"-rss_limit_mb={_MEMORY_MB}", "-timeout=30"]
    atheris.Setup(
        [name, *limits, "-print_final_stats=1", f"-artifact_prefix={corpus}/", str(corpus)],
        lambda data: attempt(target, data),
    )
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=30, help="for each target")
    parser.add_argument("--target", action="append", help="by default all")
    parser.add_argument("--alone", metavar="CORPUS", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone is not None:
        fuzz(given.target[0], given.seconds, given.alone)
    from fuzz.targets import TARGETS

    failed = []
    for name in given.target or TARGETS:
        corpus = Path(tempfile.mkdtemp(prefix=f"tidewheel-fuzz-{name}-"))
        command = [sys.executable, "-m", "fuzz.run", "--target", name, "--seconds", str(given.seconds)]
        ran = subprocess.run([*command, "--alone", str(corpus)], capture_output=True, text=True, errors="replace")
        facts = [line for line in ran.stderr.splitlines() if "number_of_executed_units" in line or "peak_rss" in line]
        print(name, "FAILED" if ran.returncode else "passed", *(line.split("stat::")[1] for line in facts), flush=True)
        if ran.returncode:
            failed.append(name)
            print(ran.stderr[-3000:], ran.stdout[-1500:], flush=True)
        else:
            shutil.rmtree(corpus)
    print(f"{len(failed)} targets failed: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
