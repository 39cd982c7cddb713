"""Show the examples of docstrings as code: Markdown would take `>>>` for a quotation."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!\s*$).*\n?)*)(?:^\n(?=>>> ))?", re.M)


def fenced(text: str) -> str:
    """Return a docstring with a fence around each example.

    >>> fenced("Add.\\n\\n>>> 1 + 1\\n2\\n\\nMore.")
    'Add.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```\\n\\nMore.'
    """
    return _EXAMPLE.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", text + "\n").rstrip()


class FencedExamples(Extension):
    """Changes the docstrings of all objects that the site shows."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Fence the examples of one object."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
