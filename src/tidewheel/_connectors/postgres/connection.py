"""Connect to PostgreSQL, retry while it is unavailable, and never show the password."""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from tidewheel._core.http_guard import is_loopback
from tidewheel._core.logs import logger
from tidewheel.errors import ConfigError, ConnectorUnavailable, StepError, TidewheelError

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

_LOG = logger(__name__)

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 2.0
# Errors of a server that refuses the client. Other errors at connecting (starting, stopping, full) are transient.
_REFUSED = re.compile(
    r"authentication failed|no password supplied|does not exist|no pg_hba\.conf entry|not permitted|permission denied|certificate"
)
_GONE = ("08", "53", "57P", "40001", "40P01", "25P03")
_WAY = "Correct the table, or the user's privileges there, and start again"
_SECRETS = ("password", "sslpassword", "oauth_client_secret")

T = TypeVar("T")


def driver() -> ModuleType:
    """Return psycopg, or raise an error that says how to install it."""
    try:
        import psycopg
    except ImportError as error:
        raise ConfigError("a postgres sink needs psycopg: pip install 'tidewheel[postgres]'") from error
    return psycopg


@dataclass(frozen=True)
class Server:
    """The address of the server, and how long to retry. It is serialized and shown, so it holds no password, only
    the name of a variable.
    """

    dsn: str
    password_env: str | None = None
    patience: float = 60.0

    def __post_init__(self) -> None:
        """Raise if the DSN contains a password, without showing it."""
        psycopg = driver()
        try:
            settings = psycopg.conninfo.conninfo_to_dict(self.dsn)
        except psycopg.ProgrammingError:
            # The error of psycopg would repeat the text, which may contain a password.
            raise ConfigError(
                "the dsn of a postgres sink cannot be read; write postgresql://user@host:5432/database or "
                "'host=… port=… user=… dbname=…'"
            ) from None
        if any(settings.get(name) for name in _SECRETS) or _hides_password(self.dsn, settings):
            raise ConfigError(
                "the dsn of a postgres sink has a password in it, which would show in logs and in `ps`; leave it "
                "out, and set "
                "PGPASSWORD, use ~/.pgpass or a service file, or name a variable that holds it (password_env=…)"
            )

    def describe(self) -> str:
        """Return the address of the server, for messages."""
        settings = driver().conninfo.conninfo_to_dict(self.dsn)
        if "service" in settings:
            return f"service {settings['service']}"
        host, port = settings.get("host") or os.environ.get("PGHOST") or "localhost", settings.get("port") or 5432
        return f"{host}:{port}/{settings.get('dbname') or os.environ.get('PGDATABASE') or ''}".rstrip("/")

    def persist(self, who: str, work: Callable[[Connection], T], way: str = _WAY) -> T:
        """Run `work` in a new connection; retry for `patience` seconds while the server is unavailable.

        `work` must be repeatable. `who` names the sink in messages, and `way` says what to do if the server rejects the
        work. Raises a `ConfigError` if the server refuses the client, a `ConnectorUnavailable` if the server stays
        unavailable, and a `StepError` with the server's text if it rejects the work.
        """
        psycopg = driver()
        deadline, wait, announced = time.monotonic() + self.patience, _FIRST_WAIT, False
        while True:
            try:
                with self._connect(who) as connection:
                    return work(connection)
            except psycopg.Error as error:
                text = self._scrubbed(error)
                if not _passes(error, text):
                    raise self._refusal(who, error, text, way) from None
            if time.monotonic() > deadline:
                raise ConnectorUnavailable(
                    f"{who}: PostgreSQL at {self.describe()} is away, for {self.patience:g} s now: {text}. Nothing "
                    "committed is "
                    "lost: start again when it is back, and the output is published"
                )
            if not announced:
                _LOG.warning(
                    "%s: PostgreSQL at %s is away (%s); trying for %g s", who, self.describe(), text, self.patience
                )
                announced = True
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    def _connect(self, who: str) -> Connection:
        psycopg = driver()
        parameters = psycopg.conninfo.conninfo_to_dict(self.dsn)
        if may_be_plain(parameters, os.environ):
            _warn_of_plain_text(self.describe())
        # Detect a server that does not answer.
        settings = {"connect_timeout": 10, "tcp_user_timeout": 30_000, "keepalives_idle": 10, "keepalives_interval": 5}
        settings = {name: value for name, value in settings.items() if name not in parameters}
        if self.password_env is not None:
            settings["password"] = self._password(who)
        connection: Connection = psycopg.connect(self.dsn, **settings, application_name="tidewheel")
        return connection

    def _password(self, who: str) -> Any:
        password = os.environ.get(self.password_env or "")
        if not password:
            raise ConfigError(
                f"{who}: the variable {self.password_env} (password_env) is not set; it holds the password"
            )
        return password

    def _scrubbed(self, error: Exception) -> str:
        """Return the text of an error on one line, without the password."""
        text = " ".join(str(error).split())
        for name in ("PGPASSWORD", self.password_env):
            secret = os.environ.get(name or "")
            text = text.replace(secret, "***") if secret else text
        return text

    def _refusal(self, who: str, error: Any, text: str, way: str) -> TidewheelError:
        if error.sqlstate is None:
            return ConfigError(
                f"{who}: PostgreSQL at {self.describe()} refuses us: {text}. Check the user, password and database"
            )
        return StepError(f"{who}: PostgreSQL at {self.describe()} refuses it: {text}. {way}")


def _hides_password(dsn: str, settings: Mapping[str, Any]) -> bool:
    """Return whether a URI has a password that libpq does not recognise: a `/`, `?` or `#` in it ends the host name."""
    if "://" not in dsn:
        return False
    hosts, ports = str(settings.get("host") or ""), str(settings.get("port") or "")
    return "@" in hosts + str(settings.get("dbname") or "") or not re.fullmatch(r"[0-9,]*", ports)


def may_be_plain(settings: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    """Return whether libpq may connect to another machine without TLS, because no `sslmode` is set. Pure.

    >>> may_be_plain({"host": "db.example"}, {}), may_be_plain({"host": "db.example", "sslmode": "require"}, {})
    (True, False)
    """
    if "service" in settings or "sslmode" in settings or environment.get("PGSSLMODE") or environment.get("PGSERVICE"):
        return False
    hosts = str(settings.get("hostaddr") or settings.get("host") or environment.get("PGHOST") or "").split(",")
    return any(host and not host.startswith(("/", "@")) and not is_loopback(host) for host in hosts)


@functools.lru_cache
def _warn_of_plain_text(place: str) -> None:
    _LOG.warning(
        "PostgreSQL at %s: without sslmode, the password and all rows may go there unencrypted: if the server has no "
        "TLS, or if "
        "somebody between pretends that it has none. Add sslmode=verify-full (with the server's authority in "
        "sslrootcert), or "
        "sslmode=disable where the network is your own",
        place,
    )


def _passes(error: Any, text: str) -> bool:
    """Return whether a retry may succeed."""
    if error.sqlstate is not None:
        return str(error.sqlstate).startswith(_GONE)
    return isinstance(error, driver().OperationalError) and _REFUSED.search(text) is None
