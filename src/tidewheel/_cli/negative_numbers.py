"""Commands whose arguments may be negative numbers: `-5` is a value there, not an option."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand

_NEGATIVE = re.compile(r"-\.?\d")


class TakesNegativeNumbers(TyperCommand):
    """A command without options that are digits, so that what looks like a negative number is one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take options that are not known for arguments, if a number is among them; too many arguments are refused."""
        ctx.ignore_unknown_options = any(map(_NEGATIVE.match, args))
        return super().parse_args(ctx, args)
