"""The run options of `tidewheel run` and `tidewheel node`: the command line, then a profile, then defaults."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tidewheel._cli.echo import echo
from tidewheel._spark.config_file import FILE, read_options
from tidewheel._spark.masters import is_remote
from tidewheel._spark.old_options import from_trigger
from tidewheel._spark.option_kinds import SETTINGS
from tidewheel._spark.options import OPTIONS, RunOptions
from tidewheel.errors import ConfigError, TidewheelError

Remote = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Run on a Spark Connect server, such as sc://host:15002, instead of --master."),
]
_EXTRA: dict[str, Any] = {
    "config": Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"The configuration file; by default {FILE} of the current folder, if any."),
    ],
    "profile": Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            envvar="TIDEWHEEL_PROFILE",
            help="Use the options of [profiles.NAME] of the configuration file; options given here take precedence.",
        ),
    ],
    "trigger": Annotated[str | None, typer.Option(hidden=True, help="Use --until or --every.")],
    "bounded": Annotated[bool, typer.Option("--bounded", hidden=True, help="Use --until end.")],
}


def with_remote(options: RunOptions, remote: str | None) -> RunOptions:
    """Return the options with the URL of `--remote` as the master; raise if it is not one, or if there is a master too."""
    if remote is None:
        return options
    if not is_remote(remote) or options.master is not None:
        raise ConfigError(f"--remote is a URL such as sc://host:15002, given without --master; it is {remote!r}")
    return replace(options, master=remote)


def with_run_options(
    names: Collection[str] = tuple(OPTIONS),
    defaults: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the parameter `options` of a command by one command-line option for each of these run options.

    The command gets a `RunOptions`. Options that are not on the command line come from the configuration file, then from
    `defaults`. `environment` names the variables that options can be given by.
    """
    own, variables = defaults or {}, environment or {}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        for each in inspect.signature(command, eval_str=True).parameters.values():
            if each.name == "options":
                parameters += [_parameter(name, _annotation(name, own, variables.get(name))) for name in names]
                parameters += [_parameter(name, annotation) for name, annotation in _EXTRA.items()]
            else:
                parameters.append(each.replace(kind=inspect.Parameter.KEYWORD_ONLY))

        @functools.wraps(command)
        def with_options(**given: Any) -> None:
            chosen = {name: given.pop(name) for name in names}
            config, profile, trigger, bounded = (given.pop(name) for name in _EXTRA)
            written = {name: _value(name, value) for name, value in chosen.items() if value is not None}
            written = _from_old_options(trigger, bounded) | written
            command(options=RunOptions(**{**own, **_from_file(config, profile, names), **written}), **given)

        del with_options.__wrapped__
        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {each.name: each.annotation for each in parameters}
        return with_options

    return decorate


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    default = False if name == "bounded" else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _annotation(name: str, defaults: Mapping[str, Any], variable: str | None) -> Any:
    declared = OPTIONS[name]
    default = defaults.get(name, declared.default)
    flag = f"--{name.replace('_', '-')}"

    def read(written: Any) -> Any:
        """Raise a usage error for an invalid value."""
        if written is None or written is False or written == []:
            return None
        try:
            declared.check(name, _value(name, written))
        except TidewheelError as error:
            raise typer.BadParameter(str(error)) from None
        return written

    option = typer.Option(
        flag,
        callback=read,
        envvar=variable,
        metavar=declared.kind.metavar,
        help=declared.help,
        show_default=str(default) if default else False,
    )
    return Annotated[declared.kind.written | None, option]


def _value(name: str, written: Any) -> Any:
    """Return an option of the command line as Python has it."""
    kind = OPTIONS[name].kind
    return _settings(written) if kind is SETTINGS else kind.read(written)


def _settings(written: list[str]) -> dict[str, str]:
    pairs = [item.partition("=") for item in written]
    wrong = [name for name, equals, _ in pairs if not equals]
    if wrong:
        raise ConfigError(f"{wrong[0]!r} lacks its value; write NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _from_file(config: Path | None, profile: str | None, names: Collection[str]) -> dict[str, Any]:
    """Return the options of the configuration file that this command has."""
    if config is None and not Path(FILE).is_file():
        if profile is not None:
            raise ConfigError(
                f"--profile {profile}: there is no {FILE} in {Path.cwd()}; go to its folder, or name the file with --config"
            )
        return {}
    return {name: value for name, value in read_options(config or FILE, profile).items() if name in names}


def _from_old_options(trigger: str | None, bounded: bool) -> dict[str, Any]:
    """Translate the options of version 0.1, and print their new forms."""
    if trigger is None and not bounded:
        return {}
    options = from_trigger(trigger, bounded)
    now = " ".join(f"--{name} {value!r}" for name, value in options.items())
    old = "--bounded" if bounded else f"--trigger {trigger!r}"
    echo(f"warning: {old} will be removed in the next version; {f'write {now}' if now else 'leave it out'}", err=True)
    return options
