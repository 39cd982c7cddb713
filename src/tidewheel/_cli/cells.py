"""`tidewheel cells`: look at cells and change them from a shell.

Values are given and shown as JSON. A cell keeps the type it was declared with; a new one gets the type that `--type`
names, or the one that a plain number, text or truth value has.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from tidewheel._cells import open_cells
from tidewheel._cells.cell import CellWriter, Snapshot
from tidewheel._cells.connection import DEFAULT_NAMESPACE, Connection
from tidewheel._cells.errors import Encoding, WrongType
from tidewheel.errors import ConfigError

app = typer.Typer(help="Look at cells and change them.", no_args_is_help=True)

_SIMPLE: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str}
_ANY_TYPE = ""

At = Annotated[
    str, typer.Option("--at", "-a", envvar="TIDEWHEEL_CELLS", help="Where the cells are: file:, s3:, etcd:, ...")
]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="The cells' namespace.")]
TypeName = Annotated[str | None, typer.Option("--type", "-t", help="The declared type of a new cell, such as float.")]
Name = Annotated[str, typer.Argument(help="The cell's name.")]


@app.command()
def get(
    name: Name,
    at: At,
    namespace: Namespace = DEFAULT_NAMESPACE,
    full: Annotated[bool, typer.Option("--full", help="Show version and type too.")] = False,
) -> None:
    """Show a cell's value; null if it is empty."""
    with open_cells(at) as connection:
        cell = _found(connection, name, namespace)
        typer.echo(_json(_described(cell) if full else cell.read()))


@app.command("set")
def set_(
    name: Name,
    value: Annotated[str, typer.Argument(help="As JSON, or plain text.")],
    at: At,
    namespace: Namespace = DEFAULT_NAMESPACE,
    type_name: TypeName = None,
) -> None:
    """Replace a cell's value; show the version at which that was committed."""
    with open_cells(at) as connection:
        cell = _declared(_found(connection, name, namespace), value, type_name)
        typer.echo(cell.write(_parsed(value, cell.type_name)))


@app.command()
def cas(
    name: Name,
    current: Annotated[str, typer.Argument(help="The value it must hold; null for empty.")],
    new: Annotated[str, typer.Argument(help="The value to put there; null to empty it.")],
    at: At,
    namespace: Namespace = DEFAULT_NAMESPACE,
    type_name: TypeName = None,
) -> None:
    """Replace a cell's value if it holds another; exit status 1 if it does not."""
    with open_cells(at) as connection:
        cell = _found(connection, name, namespace)
        if new != "null":
            cell = _declared(cell, new, type_name)
        exchange = cell.compare_exchange(_or_empty(current, cell.type_name), _or_empty(new, cell.type_name))
        typer.echo(_json(exchange._asdict()))
        if not exchange.applied:
            raise typer.Exit(1)


@app.command()
def clear(name: Name, at: At, namespace: Namespace = DEFAULT_NAMESPACE, type_name: TypeName = None) -> None:
    """Empty a cell; show the version at which that was committed."""
    with open_cells(at) as connection:
        cell = _found(connection, name, namespace)
        if not cell.type_name and type_name is None and not cell.version():
            raise ConfigError(f"there is no cell {namespace}/{name} at {connection.url}; check the name")
        cell.type_name = cell.type_name or type_name or ""
        typer.echo(cell.clear())


@app.command()
def watch(
    name: Name,
    at: At,
    namespace: Namespace = DEFAULT_NAMESPACE,
    count: Annotated[int, typer.Option("--count", "-c", min=0, help="Stop after so many; 0: go on for ever.")] = 0,
) -> None:
    """Show a cell's value and then every change, one JSON object a line."""
    with open_cells(at) as connection:
        for number, snapshot in enumerate(_found(connection, name, namespace).watch(), 1):
            typer.echo(_json(snapshot._asdict()))
            if number == count:
                return


@app.command("list")
def list_(
    at: At,
    prefix: Annotated[str, typer.Argument(help="Only names that start with this.")] = "",
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show all cells of a namespace that were ever written."""
    with open_cells(at) as connection:
        rows = [_described(_found(connection, name, namespace)) for name in connection.names(namespace, prefix)]
    if as_json:
        for item in rows:
            typer.echo(_json(item))
        return
    table = Table("name", "type", "version", "value")
    for item in rows:
        table.add_row(item["name"], item["type"], str(item["version"]), _json(item["value"]))
    Console().print(table)


def _found(connection: Connection, name: str, namespace: str) -> CellWriter[Any]:
    """Open a cell as whatever type it has."""
    return connection.writer(name, Any, namespace=namespace, type_name=_ANY_TYPE)


def _declared(cell: CellWriter[Any], value: str, type_name: str | None) -> CellWriter[Any]:
    """Give a cell that was never written its type, and refuse another for one that has it."""
    if cell.type_name and type_name not in (None, cell.type_name):
        raise WrongType(f"{cell.where} is declared as {cell.type_name}, not as {type_name}; leave --type out")
    if not cell.type_name:
        cell.type_name = type_name or _guessed(value)
    return cell


def _guessed(value: str) -> str:
    name = type(_loaded(value)).__name__
    if name not in _SIMPLE:
        raise ConfigError(
            f"the type of {value} is not clear; say it as programs declare it, as in --type 'dict[str, int]'"
        )
    return name


def _or_empty(value: str, type_name: str) -> Any:
    return None if value == "null" else _parsed(value, type_name)


def _parsed(value: str, type_name: str) -> Any:
    """Return the value meant: JSON, checked against a simple type; for a text cell, unquoted text will do."""
    if type_name == "str" and not value.startswith('"'):
        return value
    loaded = _loaded(value)
    if type_name not in _SIMPLE:
        return loaded
    try:
        return msgspec.convert(loaded, _SIMPLE[type_name])
    except msgspec.ValidationError as error:
        raise Encoding(f"{value} is not a {type_name}: {error}") from None


def _loaded(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _described(cell: CellWriter[Any]) -> dict[str, Any]:
    snapshot: Snapshot[Any] = cell.snapshot()
    return {"name": cell.name, "type": cell.type_name, "version": snapshot.version, "value": snapshot.value}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
