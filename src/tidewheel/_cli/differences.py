"""Print the differences between two states of a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidewheel._checkpoint.manifest import OperatorInfo
from tidewheel._checkpoint.tools.changed_keys import changed_keys
from tidewheel._checkpoint.tools.diff import TableDiff
from tidewheel._checkpoint.tools.text import shown
from tidewheel._cli.echo import echo


def show_differences(
    differences: Iterable[TableDiff], operators: Mapping[str, OperatorInfo], *, as_json: bool = False
) -> None:
    """Print the changed keys of each step; as JSON, one object per line."""
    for each in differences:
        found = changed_keys(each, operators)
        if as_json:
            echo(shown({"step": each.table, **found}))
            continue
        echo(f"{each.table}: {each.added} added, {each.changed} changed, {each.dropped} dropped")
        for change in found["samples"]:
            echo(f"  {shown(change['key'])}: {shown(change['before'])} -> {shown(change['after'])}")
