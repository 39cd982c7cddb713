"""Commands whose arguments can be negative numbers: `-5` is a value, not an option."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand

_NEGATIVE = re.compile(r"-\.?\d")


class TakesNegativeNumbers(TyperCommand):
    """A command without numeric options, so that anything that looks like a negative number is one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Treat unknown options as arguments if one of them is a number; too many arguments are still refused."""
        ctx.ignore_unknown_options = any(map(_NEGATIVE.match, args))
        return super().parse_args(ctx, args)
