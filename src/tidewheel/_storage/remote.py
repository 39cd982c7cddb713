"""A store in S3, Google Cloud Storage or Azure, or in a service with one of their protocols.

Credentials come from the environment, with the variables of each vendor's own tools (`AWS_ACCESS_KEY_ID`, ...), never
from the URL, which is shown in messages. Other settings can be in the URL, so that every process that gets it reaches
the same place: `s3://bucket/prefix?endpoint=http://127.0.0.1:8333&region=us-east-1`. `retry_s` is how many seconds a
failing request is retried (default 30).
"""

from __future__ import annotations

import contextlib
import functools
import re
import secrets
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import obstore
from obstore import exceptions
from obstore.store import from_url

from tidewheel._core.urls import Url
from tidewheel._storage.base import OTHER_STORE, Entry, Store, check_length, check_path
from tidewheel.errors import AccessDenied, ConfigError, NotFound, StorageError

_Names = list[str]

_SECRET = re.compile(r"key|secret|token|password|sas|credential")
_OF_THE_CLIENT = ("allow_http", "connect_timeout", "proxy_url", "timeout")
_RETRY_S = 30.0
_ENVIRONMENT = "set them in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or your vendor's)"


class RemoteStore(Store):
    """Objects below a prefix of a bucket. The bucket must exist."""

    def __init__(self, url: str, prefix: str = "") -> None:
        self._root = url
        self._prefix = prefix
        parts = urlsplit(url)
        self.url = urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{prefix}".rstrip("/")))
        self._client = _client(url)

    def read(self, path: str) -> bytes:
        with self._explained("read", path):
            return bytes(obstore.get(self._client, self._full(path)).bytes())

    def read_range(self, path: str, start: int, length: int) -> bytes:
        if length == 0:
            return b""
        with self._explained("read", path):
            try:
                data = bytes(obstore.get_range(self._client, self._full(path), start=start, length=length))
            except exceptions.GenericError:
                # Each server reports a range past the end differently: check the size to recognise it.
                if start + length <= obstore.head(self._client, self._full(path))["size"]:
                    raise
                data = b""
        return check_length(path, self.url, start, length, data)

    def create(self, path: str, data: bytes) -> bool:
        full = self._full(path)
        while True:
            with self._explained("create", path), contextlib.suppress(exceptions.AlreadyExistsError):
                obstore.put(self._client, full, data, mode="create", use_multipart=False)
                return True
            # The existing object may be our own: a put that succeeded, whose answer was lost, and which was sent again.
            with contextlib.suppress(NotFound):
                return self.read(path) == data

    def write(self, path: str, data: bytes) -> None:
        with self._explained("write", path):
            obstore.put(self._client, self._full(path), data)

    def list(self, prefix: str = "", after: str = "") -> list[Entry]:
        within = self._full(prefix) if prefix else self._prefix
        cut = len(self._prefix) + 1 if self._prefix else 0
        with self._explained("list", prefix or "."):
            entries = [
                Entry(item["path"][cut:], item["size"], item["last_modified"].timestamp())
                for page in obstore.list(self._client, within or None, offset=self._full(after) if after else None)
                for item in page
            ]
        return sorted(entries, key=lambda entry: entry.path)

    def folders(self, prefix: str = "") -> _Names:
        within = self._full(prefix) if prefix else self._prefix
        with self._explained("list", prefix or "."):
            listed = obstore.list_with_delimiter(self._client, within or None)
        return sorted(path.rstrip("/").rpartition("/")[2] for path in listed["common_prefixes"])

    def delete(self, path: str) -> None:
        with contextlib.suppress(NotFound), self._explained("delete", path):
            obstore.delete(self._client, self._full(path))

    def move(self, path: str, to: str) -> None:
        with self._explained("move", path):
            obstore.copy(self._client, self._full(path), self._full(to))
        self.delete(path)

    def at(self, prefix: str) -> Self:
        return type(self)(self._root, self._full(prefix))

    def check_conditional(self) -> None:
        path = f"probe-{secrets.token_hex(8)}"
        try:
            overwrites = self.create(path, b"first") and self.create(path, b"second")
        finally:
            self.delete(path)
        if overwrites:
            raise ConfigError(
                f"the state URL {self.url} has no conditional puts, so two runs could overwrite each other; {OTHER_STORE}"
            )

    def _full(self, path: str) -> str:
        check_path(path)
        return f"{self._prefix}/{path}" if self._prefix else path

    @contextlib.contextmanager
    def _explained(self, verb: str, path: str) -> Iterator[None]:
        try:
            yield
        except (exceptions.NotFoundError, FileNotFoundError) as error:
            if "NoSuchBucket" in str(error):
                raise self._failure(verb, path, "there is no such bucket; create it or correct the URL") from error
            raise NotFound(f"there is no {path} at {self.url}") from error
        except exceptions.UnauthenticatedError as error:
            raise self._failure(verb, path, f"the credentials were refused; {_ENVIRONMENT}", AccessDenied) from error
        except exceptions.PermissionDeniedError as error:
            advice = "the credentials do not allow it; check them, and the bucket's policy"
            raise self._failure(verb, path, advice, AccessDenied) from error
        except exceptions.BaseError as error:
            text = str(error)
            # A refused listing has no error class of its own.
            if re.search(r"status code: (401|403)", text):
                raise self._failure(
                    verb, path, f"the credentials were refused; {_ENVIRONMENT}", AccessDenied
                ) from error
            raise self._failure(verb, path, _advice(text)) from error

    def _failure(self, verb: str, path: str, advice: str, kind: type[StorageError] = StorageError) -> StorageError:
        return kind(f"could not {verb} {path} at {self.url}: {advice}")


def _advice(text: str) -> str:
    if "NoSuchBucket" in text:
        return "there is no such bucket; create it or correct the URL"
    if re.search(r"169\.254|metadata|[Mm]issing.*(credential|AccessKeyId|SecretAccessKey)", text):
        return f"no credentials were found; {_ENVIRONMENT}"
    if re.search(r"error sending request|[Cc]onnect|timed out|dns", text):
        return "the server does not answer; check the endpoint and the network"
    return f"the server says: {text.strip().splitlines()[0][:300]}"


def settings(url: str) -> tuple[str, dict[str, Any], float]:
    """Return the parts of a URL: the place without settings, the settings, and the retry time in seconds."""
    parts, place = urlsplit(url), Url(url)
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    # A bucket has neither, but Azure's URLs have a container name before the "@".
    if ":" in parts.netloc or ("@" in parts.netloc and not parts.scheme.startswith("ab")):
        raise ConfigError(f"the URL {place} has a user or password, which would show in logs; {_ENVIRONMENT}")
    for name, value in options.items():
        if _SECRET.search(name) or "@" in str(value):
            raise ConfigError(f"{name!r} in a URL would show in logs; {_ENVIRONMENT}")
    try:
        retry_s = float(options.pop("retry_s", _RETRY_S))
    except ValueError:
        raise ConfigError(f"retry_s in {place} must be a number of seconds") from None
    if not parts.netloc:
        raise ConfigError(f"the URL {place} names no bucket; write for example s3://bucket/prefix")
    if str(options.get("endpoint", "")).startswith("http://"):
        options["allow_http"] = True
    return urlunsplit(parts._replace(query="")), options, retry_s


@functools.lru_cache(maxsize=64)
def _client(url: str) -> Any:
    """Return the client of a URL: one for all stores of this process, which share their connections."""
    place, options, retry_s = settings(url)
    client_options = {name: options.pop(name) for name in _OF_THE_CLIENT if name in options}
    try:
        return from_url(
            place,
            config=options,  # type: ignore[call-overload]
            client_options=client_options,
            retry_config={
                "max_retries": 1_000,
                "retry_timeout": timedelta(seconds=retry_s),
                "backoff": {
                    "init_backoff": timedelta(seconds=0.05),
                    "max_backoff": timedelta(seconds=2),
                    "base": 2,
                },
            },
        )
    except (exceptions.BaseError, ValueError) as error:
        raise ConfigError(f"the URL {Url(url)} cannot be used: {str(error).splitlines()[0]}") from error
