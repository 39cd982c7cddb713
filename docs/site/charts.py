"""Draw the tables of docs/performance.md that charts.toml selects: as bars, and as lines over time."""

from __future__ import annotations

import re
import tomllib
from html import escape
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FIGURES = HERE.parent / "performance.md"
_LABEL, _BAR, _ROW = 210, 330, 24  # widths of labels and bars and the height of a row, in pixels


def page() -> str:
    """Return the page with all charts, in Markdown with SVG."""
    selected = tomllib.loads((HERE / "charts.toml").read_text())
    text = FIGURES.read_text()
    drawn = "\n".join(
        [
            *(_section(chart, figures(chart, text)) for chart in selected["chart"]),
            *(_trace_section(trace, points(trace, text)) for trace in selected["trace"]),
        ]
    )
    return (
        "# Benchmark charts\n\n"
        "Longer bars are faster. The figures, how they were measured, and what they do not show are in\n"
        f"[performance](performance.md). Each chart names the command that measures it again.\n\n{drawn}"
    )


def figures(chart: dict[str, Any], text: str) -> dict[str, list[tuple[str, float]]]:
    """Return the labels and numbers of the bars, by column.

    >>> chart = {"title": "t", "after": "Speed", "columns": ["b"], "bars": [{"row": "two", "label": "Two"}]}
    >>> figures(chart, "Speed:\\n\\n| | a | b |\\n|---|---|---|\\n| one | 1 | 2 |\\n| two | 3 | 4,000 (1.5) |\\n")
    {'b': [('Two', 4000.0)]}
    """
    table = _table(chart["title"], chart["after"], text)
    header, body = table[0], table[2:]
    found: dict[str, list[tuple[str, float]]] = {}
    for column in chart["columns"]:
        if column not in header:
            raise ValueError(f"chart {chart['title']!r}: the table has no column {column!r}, only {header}")
        for bar in chart["bars"]:
            row = next((row for row in body if bar["row"] in row[0]), None)
            if row is None:
                raise ValueError(f"chart {chart['title']!r}: no row of the table contains {bar['row']!r}")
            found.setdefault(column, []).append((bar["label"], _number(row[header.index(column)])))
    return found


def points(trace: dict[str, Any], text: str) -> dict[str, list[tuple[float, float]]]:
    """Return the points of each line.

    >>> trace = {"title": "t", "after": "Over time", "x": "s", "lines": ["n"]}
    >>> points(trace, "Over time:\\n\\n| s | n |\\n|---|---|\\n| 0 | 1 |\\n| 5 | 4 |\\n")
    {'n': [(0.0, 1.0), (5.0, 4.0)]}
    """
    header, _, *body = _table(trace["title"], trace["after"], text)
    missing = {trace["x"], *trace["lines"]} - set(header)
    if missing:
        raise ValueError(f"chart {trace['title']!r}: the table has no column {sorted(missing)[0]!r}, only {header}")
    x = header.index(trace["x"])
    return {name: [(_number(row[x]), _number(row[header.index(name)])) for row in body] for name in trace["lines"]}


def _trace_section(trace: dict[str, Any], lines: dict[str, list[tuple[float, float]]]) -> str:
    """Draw each line as steps in a strip of its own, with its highest value."""
    width, height, parts = _LABEL + _BAR, 3 * _ROW, []
    last = max(x for line in lines.values() for x, _ in line) or 1.0
    for number, (name, line) in enumerate(lines.items()):
        top = number * (height + _ROW) + _ROW
        most = max(y for _, y in line) or 1.0
        places = [(round(width * x / last), round(top + height * (1 - y / most))) for x, y in line]
        path = f"M{places[0][0]} {places[0][1]}" + "".join(f"H{x}V{y}" for x, y in places[1:])
        parts.append(
            f'<text x="0" y="{top - 6}">{escape(name)}, up to {most:,.0f}</text>'
            f'<path d="{path}" fill="none" stroke="{"teal" if number == 0 else "#888"}" stroke-width="2"/>'
        )
    title = escape(f"{trace['title']}, over {last:,.0f} seconds")
    svg = (
        f'<svg viewBox="0 0 {width + 4} {len(lines) * (height + _ROW) + 4}" role="img" aria-label="{title}" '
        f'style="max-width:44rem;font-size:13px" fill="currentColor">{"".join(parts)}</svg>'
    )
    return f"## {trace['title']}\n\nOver {last:,.0f} seconds, `{trace['command']}`.\n\n{svg}\n"


def _table(title: str, after: str, text: str) -> list[list[str]]:
    # Lines of the page may be wrapped anywhere.
    found = re.search(r"\s+".join(map(re.escape, after.split())), text)
    if found is None:
        raise ValueError(f"chart {title!r}: {FIGURES.name} does not contain {after!r}")
    rows: list[list[str]] = []
    for line in text[found.end() :].splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    return rows


def _number(cell: str) -> float:
    found = re.search(r"\d[\d,]*(\.\d+)?", cell)
    if found is None:
        raise ValueError(f"{cell!r} is not a number")
    return float(found[0].replace(",", ""))


def _section(chart: dict[str, Any], columns: dict[str, list[tuple[str, float]]]) -> str:
    longest = max(number for bars in columns.values() for _, number in bars)
    rows = sum(len(bars) + 1 for bars in columns.values())
    parts, y = [], 0
    for column, bars in columns.items():
        parts.append(f'<text x="0" y="{y + 17}" font-weight="bold">{escape(column)}</text>')
        for label, number in bars:
            y += _ROW
            width = max(2, round(_BAR * number / longest))
            colour = "#888" if label.startswith(("Spark", "Bytewax", "Pathway")) else "teal"
            parts.append(
                f'<text x="{_LABEL - 8}" y="{y + 17}" text-anchor="end">{escape(label)}</text>'
                f'<rect x="{_LABEL}" y="{y + 4}" width="{width}" height="{_ROW - 8}" fill="{colour}"/>'
                f'<text x="{_LABEL + width + 6}" y="{y + 17}">{number:,.0f}</text>'
            )
        y += _ROW
    title = escape(f"{chart['title']}, {chart['unit']}")
    svg = (
        f'<svg viewBox="0 0 {_LABEL + _BAR + 90} {rows * _ROW}" role="img" aria-label="{title}" '
        f'style="max-width:44rem;font-size:13px" fill="currentColor">{"".join(parts)}</svg>'
    )
    return f"## {chart['title']}\n\n{chart['unit'].capitalize()}, `{chart['command']}`.\n\n{svg}\n"
