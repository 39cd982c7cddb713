"""Report a user with three failed log-ins within ten minutes, from entries that expire one by one.

tidewheel run examples/failed_logins.py --until end
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from tidewheel import ExpiringMap, Job, Message, sinks, sources

DATA = Path(__file__).parent / "data"


@dataclass
class Login:
    """An attempt to log in."""

    user: str
    ok: bool
    at: datetime


def failures(message: Message[str, Login], recent: ExpiringMap) -> int:
    """Store the failure for ten minutes, and return how many failures of the user are stored."""
    recent.put(message.time.isoformat(), True, expires=message.time + timedelta(minutes=10))
    return sum(at > (message.time - timedelta(minutes=10)).isoformat() for at in recent)


job = Job("failed-logins")
logins = job.source("logins", sources.files(f"{DATA}/logins"), type=Login).event_time("at", max_delay="1 minute")
failed = logins.filter("failed", lambda login: not login.ok).key_by("by-user", lambda login: login.user)
(
    failed.ttl_map("recent", failures)
    .filter("three", lambda count: count == 3)
    .sink("out", sinks.files("out/failed-logins", format="json"))
)
