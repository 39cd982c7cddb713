"""A schema registry with the HTTP interface of Confluent's, which Apicurio and others offer too.

Only the standard library is used: the client in confluent-kafka needs several more packages. A request is one attempt.
Redirects are not followed, so that a log-in goes to the server that the user named and to no other.
"""

from __future__ import annotations

import base64
import http.client
import json
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import msgspec

from tidewheel._core import tls
from tidewheel._core.text import cut
from tidewheel._core.urls import Url
from tidewheel.errors import ConfigError, ConnectorUnavailable

_TYPE = "application/vnd.schemaregistry.v1+json"
_SECONDS = 10.0
_LONGEST = 1000
_LARGEST = 16 << 20
"""The maximum number of bytes of an answer."""
_AGAIN_S = 10.0
"""How long an unknown id counts as unknown before the registry is asked again, in seconds."""


@dataclass(frozen=True)
class Schema:
    """A schema: its type ("AVRO", "JSON" or "PROTOBUF"), its text, and the schemas that it refers to, by name."""

    type: str
    text: str
    references: tuple[tuple[str, Schema], ...] = ()


class _Reference(msgspec.Struct):
    """A schema that another one refers to by a name."""

    name: str
    subject: str
    version: int


class _Registered(msgspec.Struct):
    """A schema as a registry returns it."""

    schema: str
    schemaType: str | None = None
    references: list[_Reference] | None = None


class UnknownSchema(ValueError):
    """The registry has no schema with the id of a payload."""


class _Refused(Exception):
    """The registry understood a request and did not accept it."""

    def __init__(self, status: int, code: int, text: str) -> None:
        super().__init__(text)
        self.status, self.code = status, code


@dataclass(frozen=True)
class Registry:
    """A registry at a URL, `https://user:password@host:8081/path?ca=file`; a user without a password is a bearer token.

    Outages raise `ConnectorUnavailable`, and refused log-ins a `ConfigError`. Schemas are cached in the process: the
    schema of an id never changes.
    """

    url: Url

    @classmethod
    def at(cls, url: str) -> Registry:
        """Check a URL; nothing is contacted yet."""
        registry = cls(Url(url))
        registry._server()
        return registry

    def schema(self, number: int) -> Schema:
        """Return the schema of an id; raise `UnknownSchema` if there is none."""
        return _schema_of(self, number)

    def registered(self, subject: str, schema: Schema) -> int:
        """Return the id of a schema under a subject, where it is registered if it is new and compatible.

        Raise a `ConfigError` if the registry does not accept it.
        """
        place, body = f"/subjects/{quote(subject, safe='')}", {"schema": schema.text, "schemaType": schema.type}
        try:
            try:
                return int(self._ask("POST", place, body)["id"])
            except _Refused as refused:
                if refused.status != http.HTTPStatus.NOT_FOUND:
                    raise
            self._check_compatible(subject, body)
            return int(self._ask("POST", f"{place}/versions", body)["id"])
        except _Refused as refused:
            raise ConfigError(
                f"the schema registry {self.url} does not accept the {schema.type} schema for the subject {subject!r}: "
                f"{refused} (HTTP {refused.status})"
            ) from None

    def _check_compatible(self, subject: str, body: dict[str, Any]) -> None:
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/latest?verbose=true"
        try:
            answer = self._ask("POST", path, body)
        except _Refused as refused:
            if refused.status != http.HTTPStatus.NOT_FOUND:
                raise
            return  # The subject has no schema yet.
        if not answer.get("is_compatible"):
            reasons = answer.get("messages") or [answer.get("reason") or "no reason given"]
            raise ConfigError(
                f"the schema to write is incompatible with the newest one of the subject {subject!r} in the schema registry "
                f"{self.url}: {cut('; '.join(map(str, reasons)), _LONGEST)}. Nothing was written; change the schema so that "
                "it is compatible, or write under another subject="
            )

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        server = self._server()
        (host,) = server.hosts
        headers = {"Accept": f"{_TYPE}, application/json", "Content-Type": _TYPE}
        if server.user:
            login = f"{server.user}:{server.password}".encode()
            basic = f"Basic {base64.b64encode(login).decode()}"
            headers["Authorization"] = basic if server.password else f"Bearer {server.user}"
        connection: http.client.HTTPConnection
        if server.scheme == "https":
            context = tls.tls_context(server.shown, **{name: server.settings.get(name) for name in tls.SETTINGS})
            connection = http.client.HTTPSConnection(host.name, host.port, timeout=_SECONDS, context=context)
        else:
            connection = http.client.HTTPConnection(host.name, host.port, timeout=_SECONDS)
        try:
            prefix = f"/{quote(server.path)}" if server.path else ""
            connection.request(method, f"{prefix}{path}", None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return self._answer(response.status, response.read(_LARGEST))
        except (OSError, http.client.HTTPException) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ConnectorUnavailable(f"the schema registry {self.url} does not answer: {reason}") from None
        finally:
            connection.close()

    def _answer(self, status: int, content: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
            raise ConfigError(
                f"the schema registry {self.url} refuses the log-in (HTTP {status}); the URL is "
                "https://user:password@host, or https://token@host"
            )
        if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR or status == http.HTTPStatus.TOO_MANY_REQUESTS:
            raise ConnectorUnavailable(f"the schema registry {self.url} fails: HTTP {status}")
        if status < http.HTTPStatus.MULTIPLE_CHOICES and isinstance(answer, dict):
            return answer
        if status >= http.HTTPStatus.BAD_REQUEST and isinstance(answer, dict):
            code = answer.get("error_code")
            if isinstance(code, int):
                raise _Refused(status, code, cut(str(answer.get("message")), _LONGEST))
        raise self._no_registry(f"HTTP {status}")

    def _no_registry(self, answer: str) -> ConfigError:
        return ConfigError(
            f"the server at {self.url} answers {answer}, and not as a schema registry does; check the URL, with its path"
        )

    def _server(self) -> Any:
        what = "a schema registry, as in https://user:password@host:8081"
        server = self.url.server(("http", "https"), what, tls.SETTINGS)
        if len(server.hosts) != 1:
            raise ConfigError(f"the URL {self.url} names several hosts; it must name {what}")
        if not server.password and not (server.user.isascii() and server.user.isprintable()):
            raise ConfigError(
                f"the token in the URL {self.url} of the schema registry has a character that no token has, such as a line "
                "break at its end; remove it"
            )
        return server

    def _fetched(self, answer: dict[str, Any]) -> Schema:
        try:
            found = msgspec.convert(answer, _Registered)
        except msgspec.ValidationError as error:
            raise self._no_registry(f"something that is no schema ({error})") from None
        references = tuple((each.name, self._version(each.subject, each.version)) for each in found.references or ())
        return Schema(found.schemaType or "AVRO", found.schema, references)

    def _version(self, subject: str, version: int) -> Schema:
        return self._fetched(self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}"))


_unknown: dict[tuple[Registry, int], float] = {}
"""When an id was found to be unknown. Thousands of payloads can have the same one."""


@lru_cache(maxsize=1000)
def _schema_of(registry: Registry, number: int) -> Schema:
    text = f"the schema registry {registry.url} has no schema with the id {number}"
    if time.monotonic() < _unknown.get((registry, number), 0.0):
        raise UnknownSchema(text)
    try:
        return registry._fetched(registry._ask("GET", f"/schemas/ids/{number}"))
    except _Refused as refused:
        if refused.status != http.HTTPStatus.NOT_FOUND:
            raise UnknownSchema(f"{text}: {refused}") from None
        if len(_unknown) >= _LONGEST:
            _unknown.clear()
        _unknown[registry, number] = time.monotonic() + _AGAIN_S
        raise UnknownSchema(text) from None
