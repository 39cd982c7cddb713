"""`tidewheel cells`: read and change cells from a shell.

Values are read and shown as JSON. A cell keeps its declared type. A new or cleared cell gets the type that `--type`
names, or the type of a plain number, text or truth value.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from tidewheel._cells.author import Author
from tidewheel._cells.cell import CellWriter
from tidewheel._cells.errors import Encoding, WrongType
from tidewheel._cli.cell_place import CellPlace, of_cells
from tidewheel._cli.echo import echo
from tidewheel._cli.negative_numbers import TakesNegativeNumbers
from tidewheel._engine.declaration import SIMPLE_TYPES
from tidewheel.errors import ConfigError

app = typer.Typer(help="Read and change cells.", no_args_is_help=True, rich_markup_mode="markdown")

_EMPTY = "null"

TypeName = Annotated[
    str | None, typer.Option("--type", "-t", metavar="TYPE", help="The declared type of a new cell, such as float.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The cell's name.")]


@app.command()
@of_cells
def get(
    place: CellPlace,
    name: Name,
    full: Annotated[bool, typer.Option("--full", help="Show version, type and author too.")] = False,
) -> None:
    """Show a cell's value; null if it is empty. For an empty cell of a job, the default is shown and marked.

    For example:

        tidewheel cells get threshold --job clicks
    """
    with place.cell(name) as cell:
        described = {**_described(cell), **_default(place, name)}
    if full:
        echo(_json(described))
    elif described["value"] is None and "default" in described:
        echo(f"{_json(described['default'])} (default)")
    else:
        echo(_json(described["value"]))


@app.command("set", cls=TakesNegativeNumbers)
@of_cells
def set_(
    place: CellPlace,
    name: Name,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The new value, as JSON or plain text.")],
    type_name: TypeName = None,
) -> None:
    """Replace a cell's value and show the version of that commit.

    For example:

        tidewheel cells set threshold 0.75 --job clicks

        tidewheel cells set rates '{"EUR": 1.0}' --job clicks --state s3://bucket/state
    """
    with place.cell(name) as cell:
        _declare(cell, value, type_name)
        echo(cell.write(_parsed(value, cell)))


@app.command(cls=TakesNegativeNumbers)
@of_cells
def cas(
    place: CellPlace,
    name: Name,
    current: Annotated[
        str, typer.Argument(metavar="CURRENT", help="The value that the cell must have; null if empty.")
    ],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The new value; null empties the cell.")],
    type_name: TypeName = None,
) -> None:
    """Replace a cell's value if it equals CURRENT; exit status 1 if it does not.

    For example:

        tidewheel cells cas threshold 0.5 0.75 --job clicks
    """
    with place.cell(name) as cell:
        if new != "null":
            _declare(cell, new, type_name)
        exchange = cell.compare_exchange(_or_empty(current, cell), _or_empty(new, cell))
        echo(_json(exchange._asdict()))
        if not exchange.applied:
            raise typer.Exit(1)


@app.command()
@of_cells
def clear(
    place: CellPlace,
    name: Name,
) -> None:
    """Empty a cell and forget its type, so that a new type can be declared; show the version of that commit."""
    with place.standing(name) as cell:
        echo(cell.forget())


@app.command()
@of_cells
def watch(
    place: CellPlace,
    name: Name,
    count: Annotated[
        int, typer.Option("--count", "-c", min=0, help="Stop after this many changes; 0 never stops.")
    ] = 0,
) -> None:
    """Show a cell's value and then every change, one JSON object per line. An empty cell of a job shows its default.

    For example:

        tidewheel cells watch threshold --job clicks
    """
    with place.cell(name) as cell:
        default = _default(place, name)
        shown = -1
        number = 0
        for _ in cell.watch():
            change = cell.last_change()
            if change.version == shown:
                continue  # The value was newer than the change that woke this loop.
            shown = change.version
            echo(_json({**change._asdict(), "author": _facts(change.author), **default}))
            number += 1
            if number == count:
                return


@app.command("list")
@of_cells
def list_(
    place: CellPlace,
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Only names that start with this.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Show the cells that a job declares, or all cells of a namespace that were ever written.

    For example:

        tidewheel cells list --job clicks
    """
    rows = _rows(place, prefix)
    if as_json:
        for item in rows:
            echo(_json(item))
        return
    for item in rows:
        echo(_block(item))


def _block(item: dict[str, Any]) -> str:
    """Return a cell as a line with its name, then a line for each property. Values are never truncated."""
    version, value, default = item["version"], _json(item["value"]), _json(item.get("default"))
    lines = [f"{item['name']}  {item['type']}" + (f"  version {version}" if version else "")]
    if default == _EMPTY:
        lines.append(f"    value    {value}")
    elif value == _EMPTY:
        lines.append(f"    value    {default} (default)")
    else:
        lines += [f"    value    {value}", f"    default  {default}"]
    if version:
        lines.append(f"    author   {_author_text(item['author'])}")
    return "\n".join(lines)


def _author_text(author: dict[str, Any] | None) -> str:
    if author is None:
        return "unknown"
    moment = datetime.fromtimestamp(author["at"]).astimezone()
    return f"{Author(**author)}, {moment:%Y-%m-%d %H:%M:%S}"


def _rows(place: CellPlace, prefix: str) -> list[dict[str, Any]]:
    """Return the properties of each cell, sorted by name."""
    with place.open() as connection:
        if place.stored is None:
            names = connection.names(place.namespace, prefix)
            return [_described(place.found(connection, name)) for name in names]
        rows = []
        for declared in place.stored.declaration.cells:
            if declared.name.startswith(prefix):
                written = _described(place.found(connection, declared.name))
                rows.append({**written, "type": declared.type, "default": declared.default})
        return rows


def _default(place: CellPlace, name: str) -> dict[str, Any]:
    """Return a cell's declared default as `default`; an empty dict for cells that no job declares."""
    return {} if place.stored is None else {"default": place.stored.declared(name).default}


def _declare(cell: CellWriter[Any], value: str, type_name: str | None) -> None:
    """Declare the type of a cell that was never written; raise if the cell has another type."""
    if cell.type_name and type_name not in (None, cell.type_name):
        raise WrongType(
            f"{cell.where} is declared as {cell.type_name}, not as {type_name}; leave --type out, or clear it first"
        )
    if not cell.type_name:
        cell.type_name = type_name or _guessed(value)


def _guessed(value: str) -> str:
    name = type(_loaded(value)).__name__
    if name not in SIMPLE_TYPES:
        raise ConfigError(
            f"the type of {value} is ambiguous; name it as a program declares it, as in --type 'dict[str, int]'"
        )
    return name


def _or_empty(value: str, cell: CellWriter[Any]) -> Any:
    return None if value == "null" else _parsed(value, cell)


def _parsed(value: str, cell: CellWriter[Any]) -> Any:
    """Return the parsed value: JSON, checked against a simple type. For a text cell, the quotes are optional."""
    type_name = cell.type_name
    if type_name == "str" and not value.startswith('"'):
        return value
    loaded = _loaded(value)
    if type_name not in SIMPLE_TYPES:
        if loaded is value and value.lstrip().startswith(("{", "[")):
            raise Encoding(
                f"{value} cannot be written to {cell.where}: it is not valid JSON; check that it is complete, and "
                "quoted for the shell"
            )
        return loaded
    try:
        return msgspec.convert(loaded, SIMPLE_TYPES[type_name])
    except msgspec.ValidationError as error:
        raise Encoding(f"{value} is not of type {type_name}: {error}") from None


def _loaded(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _described(cell: CellWriter[Any]) -> dict[str, Any]:
    change = cell.last_change()
    about = {"name": cell.name, "type": cell.type_name, "version": change.version, "value": change.value}
    return {**about, "author": _facts(change.author)}


def _facts(author: Author | None) -> dict[str, Any] | None:
    return None if author is None else msgspec.structs.asdict(author)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
