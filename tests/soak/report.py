"""The report of a soak as Markdown, with charts as SVG."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from soak.faults import Happened

_COLOURS = ("#2166ac", "#b2182b", "#1b7837", "#e08214", "#762a83", "#666666")
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 720, 240, 60, 30, 40

Series = Mapping[str, Sequence[tuple[float, float]]]
"""Points of time in seconds and value, by name."""


def chart(title: str, unit: str, series: Series) -> str:
    """Return a line chart as SVG."""
    most = max((value for points in series.values() for _, value in points), default=1.0) or 1.0
    last = max((at for points in series.values() for at, _ in points), default=1.0) or 1.0
    wide, high = _WIDTH - _LEFT - 20, _HEIGHT - _TOP - _BOTTOM

    def place(at: float, value: float) -> str:
        return f"{_LEFT + wide * at / last:.1f},{_TOP + high * (1 - value / most):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="16" font-size="13">{title}</text>',
    ]
    for share in (0.0, 0.5, 1.0):
        y = _TOP + high * (1 - share)
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{most * share:,.0f}</text>')
        x = _LEFT + wide * share
        minutes = last * share / 60
        parts.append(f'<text x="{x:.1f}" y="{_TOP + high + 15}" text-anchor="middle">{minutes:.0f} min</text>')
    for number, (name, points) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        line = " ".join(place(at, value) for at, value in points)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.2" points="{line}"/>')
        x = _LEFT + number * wide / len(series)
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 8}" fill="{colour}">{name}</text>')
    parts.append(f'<text x="6" y="{_TOP - 8}" fill="#666">{unit}</text></svg>')
    return "\n".join(parts) + "\n"


def faults_table(happened: Sequence[Happened]) -> str:
    by_kind: dict[str, list[Happened]] = defaultdict(list)
    for each in happened:
        by_kind[each.kind].append(each)
    lines = ["| fault | count | recovery, median | worst |", "|---|---|---|---|"]
    for kind, group in sorted(by_kind.items(), key=lambda item: -len(item[1])):
        lines.append(f"| {kind} | {len(group)} | {_median(group)} | {_worst(group)} |")
    lines.append(f"| all | {len(happened)} | {_median(happened)} | {_worst(happened)} |")
    return "\n".join(lines)


def _median(group: Sequence[Happened]) -> str:
    times = [each.recovery for each in group if each.recovery is not None]
    return f"{statistics.median(times):.1f} s" if times else "–"


def _worst(group: Sequence[Happened]) -> str:
    times = [each.recovery for each in group]
    return "not recovered" if None in times else f"{max(times):.1f} s" if times else "–"  # type: ignore[type-var]


def quarters(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the medians of the second and of the last quarter."""
    quarter = len(points) // 4
    if not quarter:
        return 0.0, 0.0
    second, last = points[quarter : 2 * quarter], points[-quarter:]
    return statistics.median(value for _, value in second), statistics.median(value for _, value in last)


def growth_table(charts: Mapping[str, Series]) -> str:
    lines = ["| | median of the second quarter | of the last quarter |", "|---|---|---|"]
    for title, series in charts.items():
        for name, points in series.items():
            before, after = quarters(points)
            lines.append(f"| {title}, {name} | {before:,.0f} | {after:,.0f} |")
    return "\n".join(lines)


def write_charts(folder: Path, charts: Mapping[str, tuple[str, Series]]) -> None:
    for title, (unit, series) in charts.items():
        (folder / f"soak-{title.split()[0].lower()}.svg").write_text(chart(title, unit, series))
