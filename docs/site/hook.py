"""Pages of the site that are generated: the README, examples, charts, changelog, public names and commands."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.main import get_command

sys.path.insert(0, str(Path(__file__).parent))

import charts

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
MODULES = re.findall(r"^## `(tidewheel[\w.]*)`$", (ROOT / "docs/api.md").read_text(), re.M)
"""The public modules: the sections of docs/api.md, which tests/unit/test_public_names.py compares with the code."""
_SUBCLASSES = {"TimedStream", "KeyedTimedStream", "DecodedStream", "KeyedDecodedStream", "WindowedStream"}
"""Streams whose steps are those of `Stream` and `KeyedStream`, which the page shows once."""
_GENERATED = {"CHANGELOG.md": "changelog.md", "examples/README.md": "examples.md"}
"""Pages of the site for files outside the folder of the docs."""
_OWN_MEMBERS = "    options:\n      inherited_members: false\n"


def on_config(config: MkDocsConfig) -> None:
    """Add the generated pages to the navigation."""
    assert config.nav is not None
    reference = next(section["Reference"] for section in config.nav if "Reference" in section)
    reference += [{module: _page(module)} for module in MODULES]
    reference.append({"Commands": "reference/commands.md"})


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the generated pages."""
    readme = (ROOT / "README.md").read_text()
    pages = {
        "index.md": readme.replace("](docs/", "](")
        .replace("](CHANGELOG.md)", "](changelog.md)")
        .replace("](examples/README.md)", "](examples.md)"),
        "examples.md": _examples(),
        "charts.md": charts.page(),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text().replace("](docs/", "]("),
        "reference/commands.md": _commands(),
        **{_page(module): _names(module) for module in MODULES},
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))


def on_page_markdown(markdown: str, page: Page, **kwargs: Any) -> str:
    """Turn links that leave the folder of the docs into links inside the site, or into plain text."""
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def replaced(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return link[0]
        generated = _GENERATED.get(str(target.relative_to(ROOT)))
        return f"[{link[1]}]({generated})" if generated else link[1]

    return re.sub(r"\[([^\]]+)\]\((\.\./[^)#]*)[^)]*\)", replaced, markdown)


def _examples() -> str:
    """Return the index of the examples, followed by the programs."""
    index = (EXAMPLES / "README.md").read_text()
    names = re.findall(r"^\| \[([a-z_]+\.py)\]", index, re.M)
    programs = (f"## {name}\n\n```python\n{(EXAMPLES / name).read_text()}```\n" for name in names)
    linked = re.sub(r"\]\(([a-z_]+)\.py\)", r"](#\1py)", index)
    return linked + "\n" + "\n".join(programs)


def _page(module: str) -> str:
    return f"reference/{module}.md"


def _names(module: str) -> str:
    """Return a page with every public name of a module; base classes for your own connectors come last."""
    submodules = {name.rpartition(".")[2] for name in MODULES}
    found = importlib.import_module(module)
    names = [name for name in found.__all__ if name not in submodules]
    if module in ("tidewheel.sources", "tidewheel.sinks", "tidewheel.tables", "tidewheel.codecs"):
        names.sort(key=lambda name: isinstance(getattr(found, name), type))
    entries = (f"::: {module}.{name}\n{_OWN_MEMBERS if name in _SUBCLASSES else ''}" for name in names)
    return f"# {module}\n\n" + "\n".join(entries)


def _commands() -> str:
    """Return a page with every command and its options."""
    from tidewheel._cli import app

    return "# Commands\n\n" + "\n".join(_command("tidewheel", get_command(app))) + "\n"


def _command(path: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    if isinstance(command, click.Group) or hasattr(command, "list_commands"):
        for name in command.list_commands(context):  # type: ignore[attr-defined]
            found = command.get_command(context, name)  # type: ignore[attr-defined]
            if not found.hidden:
                yield from _command(f"{path} {name}", found)
        return
    yield f"## {path}\n\n{(command.help or '').strip()}\n"
    arguments = "".join(f" {_written(each)}" for each in command.params if _is_argument(each))
    yield f"```text\n{path}{arguments} [options]\n```\n"
    rows = [_row(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]
    if rows:
        yield "| option | meaning |\n|---|---|\n" + "\n".join(rows) + "\n"


def _row(parameter: click.Parameter) -> str:
    text = " ".join((getattr(parameter, "help", None) or "").split()).replace("|", "\\|")
    default = parameter.default
    shown = f" Default: `{default}`." if default not in (None, False, (), []) and not callable(default) else ""
    return f"| `{_written(parameter)}` | {text}{shown} |"


def _written(parameter: click.Parameter) -> str:
    if _is_argument(parameter):
        return (parameter.name or "").upper()
    return ", ".join((*parameter.opts, *parameter.secondary_opts))


def _is_argument(parameter: click.Parameter) -> bool:
    # Typer has classes of its own, which do not derive from those of click in all versions.
    return parameter.param_type_name == "argument"
