"""The keyword arguments that the pages name are parameters of the public API."""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict

import pytest

from support.public_modules import public
from support.public_pages import PAGES

ANYTHING = "**"
"""Stands for all keywords: the callable takes any."""
ELSEWHERE = {
    *("header", "sep", "quote", "escape", "wholetext"),  # options of formats
    *("array_like", "default_factory"),  # of msgspec and of dataclasses
    "pieces",  # an aggregate
}


def parameters(function: object) -> set[str]:
    """Return the names that a callable takes by keyword."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {ANYTHING}
    names = {each.name for each in found if each.kind is not each.VAR_KEYWORD}
    for each in found:
        if each.kind is each.VAR_KEYWORD:
            unpacked = re.fullmatch(r"Unpack\[(\w+)\]", str(each.annotation))
            options = getattr(function, "__globals__", {}).get(unpacked[1]) if unpacked else None
            names |= {ANYTHING} if options is None else set(options.__annotations__)
    return names


KEYWORDS: dict[str, set[str]] = defaultdict(set)
for name, member in public():
    KEYWORDS[name] |= parameters(member)
ALL = ELSEWHERE.union(*KEYWORDS.values())


def unknown(text: str) -> list[str]:
    """Return the keywords in the code of a page that its call does not take, or that nothing takes if there is no call."""
    found = []
    for span in re.findall(r"(?<!`)`((?:[^`\n]|\n(?!\n))+)`(?!`)", re.sub(r"(?s)```.*?```", "", text)):
        try:
            tree = ast.parse(re.sub(r"=$", "=...", " ".join(span.split()).replace("…", "...")))
        except SyntaxError:
            continue
        alone = re.match(r"([a-z_]+)=(?!=)", span)
        if alone and alone[1] not in ALL:
            found.append(span)
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name | ast.Attribute):
                known = KEYWORDS.get(call.func.id if isinstance(call.func, ast.Name) else call.func.attr, {ANYTHING})
                if ANYTHING not in known:
                    found += [f"{each.arg} in {span}" for each in call.keywords if each.arg and each.arg not in known]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_keywords_of_the_docs_are_parameters(page):
    assert unknown(page.read_text()) == []


def test_an_unknown_option_is_detected():
    assert unknown(
        '`sources.kafka("b", "t", starting="latest")`, `starting=`, `sources.kafka("b", "t", start="latest")`'
    ) == [
        'starting in sources.kafka("b", "t", starting="latest")',
        "starting=",
    ]
