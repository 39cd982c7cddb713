"""Compute ratios from measurements, and show both. Pure except for printing the table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.state.cases import KEYS, LARGE, MEDIUM, SMALL, Case
from benchmarks.state.measure import Measurement
from benchmarks.state.session import SETTINGS
from rich.console import Console
from rich.table import Table

Done = Mapping[Case, Measurement]


@dataclass(frozen=True)
class Ratio:
    """`subject` divided by `opponent`: of rates, where more is better, or of batch times, where less is better."""

    name: str
    subject: tuple[str, int, int]
    opponent: tuple[str, int, int]
    target: float | None
    of_rates: bool = True
    sustained: bool = False
    """Whether the rates are over all measured batches together, not the medians."""

    def value(self, done: Done, divisor: int = 1) -> float | None:
        """Return the ratio; None if one of the two was not measured."""
        ours, theirs = (_find(done, which, divisor) for which in (self.subject, self.opponent))
        if ours is None or theirs is None:
            return None
        if self.sustained:
            return round(ours.sustained_rows_per_second / theirs.sustained_rows_per_second, 3)
        if self.of_rates:
            return round(ours.rows_per_second / theirs.rows_per_second, 3)
        return round(ours.batch_milliseconds / theirs.batch_milliseconds, 3)

    def met(self, value: float | None) -> bool | None:
        """Return whether the target is reached; None if there is nothing to compare."""
        if value is None or self.target is None:
            return None
        return value >= self.target if self.of_rates else value <= self.target


def _against(opponent: str, short: str, rows: int, targets: Mapping[int, float]) -> list[Ratio]:
    return [
        Ratio(f"stateful_map_vs_{short}_{keys}", ("stateful_map", keys, rows), (opponent, keys, rows), target)
        for keys, target in targets.items()
    ]


def _aggregate(keys: int, target: float | None) -> Ratio:
    return Ratio(f"aggregate_vs_floor_{keys}", ("aggregate", keys, LARGE), ("floor", keys, LARGE), target)


def _pathway(step: str, opponent: str, targets: Mapping[int, float]) -> list[Ratio]:
    return [
        Ratio(f"{step}_vs_pathway_{keys}", (f"{step}_csv", keys, LARGE), (opponent, keys, LARGE), target)
        for keys, target in targets.items()
    ]


def _latency(name: str, opponent: str, target: float | None) -> Ratio:
    return Ratio(name, ("stateful_map", SMALL, SMALL), (opponent, SMALL, SMALL), target, of_rates=False)


def _sustained(step: str) -> Ratio:
    many = KEYS[-1]
    name = f"{step}_vs_floor_{many}_sustained"
    return Ratio(name, (step, many, LARGE), ("floor", many, LARGE), 1, sustained=True)


def _duckdb(keys: int, target: float) -> Ratio:
    return Ratio(f"aggregate_vs_duckdb_{keys}", ("aggregate", keys, LARGE), ("duckdb", keys, LARGE), target)


RATIOS = (
    *_against("transform_with_state", "tws", MEDIUM, {100: 12, 10_000: 20, 1_000_000: 80}),
    *_against("floor", "floor", LARGE, {100: 2, 10_000: 2, 1_000_000: 1}),
    *_against("bytewax", "bytewax", LARGE, {100: 2, 10_000: 4, 1_000_000: 20}),
    *_pathway("stateful_map", "pathway_stateful", {10_000: 2, 1_000_000: 1.5}),
    _aggregate(100, None),
    _aggregate(10_000, 3),
    _aggregate(1_000_000, 1),
    _sustained("stateful_map"),
    _sustained("aggregate"),
    _duckdb(10_000, 0.3),
    _duckdb(1_000_000, 0.4),
    *_pathway("aggregate", "pathway_sum", {10_000: 2, 1_000_000: 1.5}),
    _latency("latency_vs_empty", "foreach_batch_nothing", 0.35),
    _latency("latency_vs_same_query", "foreach_batch_same_query", None),
)


def _find(done: Done, which: tuple[str, int, int], divisor: int) -> Measurement | None:
    contender, keys, rows = which
    wanted = rows if rows == SMALL else rows // divisor
    return next((m for c, m in done.items() if (c.contender, c.keys, c.rows) == (contender, keys, wanted)), None)


def ratios(done: Done, divisor: int = 1) -> dict[str, float | None]:
    """Return every ratio by name."""
    return {r.name: r.value(done, divisor) for r in RATIOS}


def figure(case: Case, measurement: Measurement) -> dict[str, Any]:
    """Return everything that was measured in one case, for the JSON line."""
    return {
        "contender": case.contender,
        "keys": case.keys,
        "batch_rows": case.rows,
        "rows_per_second": round(measurement.rows_per_second),
        "batch_ms": round(measurement.batch_milliseconds, 1),
        "batches_ms": [round(b.milliseconds) for b in measurement.batches],
        "measured_batches": len(measurement.measured),
        "durations_ms": {n: round(v, 1) for n, v in measurement.durations.items()},
        "notes": list(measurement.notes),
    }


def document(mode: str, done: Done, failed: Mapping[Case, str], seconds: float, divisor: int) -> dict[str, Any]:
    """Return the JSON line."""
    small = _find(done, ("stateful_map", SMALL, SMALL), divisor)
    return {
        "benchmark": "state",
        "mode": mode,
        "seconds": round(seconds),
        **ratios(done, divisor),
        **_slowest(done, divisor),
        "latency_ms": None if small is None else round(small.batch_milliseconds, 1),
        "figures": [figure(c, m) for c, m in done.items()],
        "settings": SETTINGS,
        "failed": {c.name: why for c, why in failed.items()},
    }


def _slowest(done: Done, divisor: int) -> dict[str, float | None]:
    """Return the slowest measured batch of the cases with the most keys, in ms."""
    many = KEYS[-1]
    found = {step: _find(done, (step, many, LARGE), divisor) for step in ("floor", "stateful_map", "aggregate")}
    return {
        f"{step}_slowest_ms_{many}": None if m is None else round(m.slowest_milliseconds, 1)
        for step, m in found.items()
    }


def show(console: Console, done: Done, divisor: int = 1) -> None:
    """Print the figures, the parts of Spark's time, and the ratios with their targets."""
    console.print(_figures(done), _durations(done), _ratios(done, divisor))
    for case, measurement in done.items():
        for note in measurement.notes:
            console.print(f"{case.name}: {note}", highlight=False)


def _figures(done: Done) -> Table:
    table = Table(title="keyed running sum, local\\[2]")
    for name in ("contender", "keys", "rows a batch", "rows/s", "median ms", "each batch, ms"):
        table.add_column(name, justify="left" if name == "contender" else "right")
    for case, m in done.items():
        each = _shortened([f"{b.milliseconds:.0f}" for b in m.batches])
        row = (
            f"{case.keys:,}",
            f"{case.rows:,}",
            f"{m.rows_per_second:,.0f}",
            f"{m.batch_milliseconds:,.0f}",
        )
        table.add_row(case.contender, *row, each)
    return table


def _shortened(values: Sequence[str], most: int = 12) -> str:
    if len(values) <= most:
        return " ".join(values)
    return " ".join([*values[: most // 2], "…", *values[-most // 2 :]])


def _durations(done: Done) -> Table:
    names = list(dict.fromkeys(n for m in done.values() for n in m.durations if n != "triggerExecution"))
    table = Table(title="where a batch's time went (medians, ms, as Spark reports it)")
    table.add_column("contender")
    for name in ("keys", "rows a batch", *names):
        table.add_column(name, justify="right")
    for case, m in done.items():
        if m.durations:
            spent = [f"{m.durations[n]:,.0f}" if n in m.durations else "" for n in names]
            table.add_row(case.contender, f"{case.keys:,}", f"{case.rows:,}", *spent)
    return table


def _ratios(done: Done, divisor: int) -> Table:
    table = Table(title="ratios")
    for name in ("ratio", "value", "target", "met"):
        table.add_column(name, justify="left" if name == "ratio" else "right")
    for ratio in RATIOS:
        value = ratio.value(done, divisor)
        sign = ">=" if ratio.of_rates else "<="
        target = "" if ratio.target is None else f"{sign} {ratio.target:g}"
        met = {True: "yes", False: "no", None: ""}[ratio.met(value)]
        table.add_row(ratio.name, "" if value is None else f"{value:.2f}", target, met)
    return table
