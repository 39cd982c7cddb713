"""Print the differences between two states of a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidewheel._checkpoint.manifest import OperatorInfo
from tidewheel._checkpoint.tools.diff import TableDiff
from tidewheel._checkpoint.tools.text import decoded, shown
from tidewheel._cli.echo import echo
from tidewheel._state.auxiliary_tables import readable_key


def show_differences(
    differences: Iterable[TableDiff], operators: Mapping[str, OperatorInfo], *, as_json: bool = False
) -> None:
    """Print the changed keys of each step; as JSON, one object per line."""
    for each in differences:
        step = each.table.partition("/")[0]
        codec = operators[step].codec if step in operators else ""
        own = operators.get(each.table)
        changes = [
            {
                "key": readable_key(each.table, change.key),
                "before": decoded(change.before, codec, own),
                "after": decoded(change.after, codec, own),
            }
            for change in each.samples
        ]
        if as_json:
            counts = {"step": each.table, "added": each.added, "changed": each.changed, "dropped": each.dropped}
            echo(shown(counts | {"samples": changes}))
            continue
        echo(f"{each.table}: {each.added} added, {each.changed} changed, {each.dropped} dropped")
        for change in changes:
            echo(f"  {shown(change['key'])}: {shown(change['before'])} -> {shown(change['after'])}")
