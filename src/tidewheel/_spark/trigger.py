"""When a run takes its next batch: what a program and the command line may say."""

from __future__ import annotations

from difflib import get_close_matches

from tidewheel._time.duration import Duration, nanoseconds
from tidewheel.errors import ConfigError, GraphError

NAMES = ("available-now", "once")


def check_trigger(trigger: Duration | None) -> None:
    """Refuse, with a `ConfigError`, what is no trigger, and those that break the argument for exactly once."""
    # "direct" was a choice once, and is what every run does now.
    if trigger is None or trigger in (*NAMES, "direct"):
        return
    text = str(trigger).strip().lower()
    if "real" in text or "continuous" in text:
        raise ConfigError(f"the trigger {trigger!r} has no batches to commit; use an interval such as '5 seconds'")
    try:
        nanoseconds(trigger, "the trigger")
    except GraphError:
        names = ", ".join(map(repr, NAMES))
        raise ConfigError(
            f"{trigger!r} is not a trigger; use {names}, or an interval such as '5 seconds'{_meant(text)}"
        ) from None


def interval(trigger: Duration) -> float:
    """Return the least time between two batches in seconds."""
    return nanoseconds(trigger, "the trigger") / 1e9


def _meant(text: str) -> str:
    near = get_close_matches(text.replace("_", "-").replace(" ", "-"), NAMES, 1)
    if text.replace(".", "", 1).isdecimal():
        near = [f"{text} seconds"]
    return f". Did you mean {near[0]!r}?" if near else ""
