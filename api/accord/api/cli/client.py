"""The api over HTTP, as the commands use it: every failure is one line and an exit code."""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from accord.learner.bounds import MAX_TOKEN_BYTES

from .failures import CommandError, Exit, of_status

DEFAULT_URL = "http://127.0.0.1:8790"
TIMEOUT_S = 15.0
STREAM_SILENCE_S = 30.0
"""The api sends a heartbeat every ten seconds."""

MAX_ANSWER_BYTES = 64 << 20
MAX_LINE_BYTES = 64 << 10


@dataclass(frozen=True)
class Answer:
    """A successful answer: its JSON, and its ETag or None."""

    body: Any
    etag: str | None


class Api:
    """A client of one api.

    Args:
        url: http or https.
        token: bearer token, or None.
        ca_file: certificates to trust instead of the system's, or None.
        timeout_s: for each of connecting, sending and the silence of the server.

    Raises:
        CommandError: for a URL that is none.
    """

    def __init__(
        self, url: str, token: str | None = None, ca_file: Path | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.url = url.rstrip("/")
        if "@" in url:
            # Not shown: it may be a password.
            raise CommandError("url: must hold no user or password; give a token with --token-file", Exit.REFUSED)
        if not _is_web(self.url):
            raise CommandError(f"url = {url!r:.120}: must start with http:// or https://", Exit.REFUSED)
        # Compressed, a small answer could become one of any size.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        try:
            verify: Any = True if ca_file is None else httpx.create_ssl_context(verify=str(ca_file))
            # What listens on this machine is never behind a proxy, whatever the environment says.
            env = not _is_loopback(self.url)
            self._client = httpx.Client(
                base_url=self.url, headers=headers, timeout=timeout_s, verify=verify, trust_env=env
            )
        except ImportError as error:
            raise CommandError(f"{self._proxy()}{error}", Exit.REFUSED) from None
        except (OSError, httpx.InvalidURL, UnicodeError, ValueError) as error:
            raise CommandError(f"url = {url!r:.120}, ca_file = {ca_file}: {error}", Exit.REFUSED) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._client.close()

    def get(self, path: str, **query: Any) -> Answer:
        """One GET; parameters that are None are left out."""
        return self._call("GET", path, params=_given(query))

    def find(self, path: str, **query: Any) -> Answer | None:
        """GET that may find nothing: None for a 404."""
        try:
            return self.get(path, **query)
        except CommandError as error:
            if error.exit_code == Exit.UNKNOWN:
                return None
            raise

    def send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, if_match: str | None = None
    ) -> Answer:
        """POST, PUT or DELETE with a JSON body and, where the route wants it, If-Match."""
        headers = {"If-Match": if_match} if if_match is not None else {}
        if body is None:
            return self._call(method, path, headers=headers)
        # Not httpx's own encoding: NaN and halves of characters must reach the api, which refuses them by name.
        content = json.dumps(_given(body)).encode("ascii")
        return self._call(method, path, content=content, headers=headers | {"Content-Type": "application/json"})

    def lines(self, path: str, **query: Any) -> Iterator[str]:
        """The lines of a stream until the server ends it.

        Raises:
            CommandError: UNREACHABLE when the stream breaks, falls silent, or holds a line without an end.
        """
        with self._reported():
            timeout = httpx.Timeout(TIMEOUT_S, read=STREAM_SILENCE_S)
            headers = {"Accept": "text/event-stream"}
            with self._client.stream("GET", path, params=_given(query), timeout=timeout, headers=headers) as response:
                if not response.is_success:
                    self._refuse(response, self._read(response))
                rest = b""
                for part in response.iter_raw():
                    *lines, rest = (rest + part).split(b"\n")
                    yield from (line.decode("utf-8", "replace") for line in lines)
                    if len(rest) > MAX_LINE_BYTES:
                        raise self._too_much(MAX_LINE_BYTES, "in one line")

    def _call(self, method: str, path: str, **how: Any) -> Answer:
        with self._reported(), self._client.stream(method, path, **how) as response:
            content = self._read(response)
        if not response.is_success:
            self._refuse(response, content)
        try:
            return Answer(json.loads(content), response.headers.get("etag"))
        except (ValueError, RecursionError):
            raise CommandError(f"{self.url} did not answer JSON: is it accord's api?", Exit.UNREACHABLE) from None

    def _read(self, response: httpx.Response) -> bytes:
        content = bytearray()
        for part in response.iter_raw():
            content += part
            if len(content) > MAX_ANSWER_BYTES:
                raise self._too_much(MAX_ANSWER_BYTES)
        return bytes(content)

    def _too_much(self, limit: int, where: str = "") -> CommandError:
        return CommandError(f"{self.url} answers more than {limit} bytes {where}".rstrip(), Exit.UNREACHABLE)

    def _refuse(self, response: httpx.Response, content: bytes) -> NoReturn:
        status = response.status_code
        try:
            error = json.loads(content)["error"]
            field, value = error.get("field"), error.get("value")
            about = f"{field} = {value}: " if field and value is not None else f"{field}: " if field else ""
            message = f"{about}{error['message']}"
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            message = f"{response.url} answered status {status}: is it accord's api?"
        hint = {401: " (give a token with --token-file or ACCORD_API_TOKEN)"}.get(status, "")
        raise CommandError(f"{message}{hint}", of_status(status))

    def _proxy(self) -> str:
        """Through which proxy of the environment it is asked, in words; nothing without one."""
        parts = urlsplit(self.url)
        given = getproxies()
        scheme = next((name for name in (parts.scheme, "all") if name in given), None)
        if scheme is None or _is_loopback(self.url) or proxy_bypass(parts.hostname or ""):
            return ""
        # Without what may be a password.
        where = given[scheme].rpartition("@")[2]
        return f"through the proxy {where!r:.120} of {scheme.upper()}_PROXY (NO_PROXY leaves hosts out): "

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except httpx.HTTPError as error:
            why = str(error) or type(error).__name__
            raise CommandError(f"{self._proxy()}{self.url} does not answer: {why}", Exit.UNREACHABLE) from None
        except (httpx.InvalidURL, UnicodeError) as error:
            raise CommandError(f"url = {self.url!r:.120}: {error}", Exit.REFUSED) from None


def segment(field: str, text: str) -> str:
    """A value as one segment of a path.

    Raises:
        CommandError: for what would name another path than one of its own.

    >>> segment("workload", "chat:hot"), segment("workload", "../x")
    ('chat:hot', '..%2Fx')
    """
    # Clients and servers take these away, and what is left is the path of something else.
    if text in ("", ".", ".."):
        raise CommandError(f"{field} = {text!r}: names nothing", Exit.REFUSED)
    # An argument that is no UTF-8 travels as the bytes that it was.
    return quote(text, safe=":", errors="surrogateescape")


def read_token(file: Path | None, environ: Mapping[str, str] | None = None) -> str | None:
    """The token: from a file, else from ACCORD_API_TOKEN, else None.

    Raises:
        CommandError: for a file that cannot be read, or a token that no header can carry. It is never shown.
    """
    env = os.environ if environ is None else environ
    where, text = "ACCORD_API_TOKEN", env.get("ACCORD_API_TOKEN", "")
    if file is not None:
        where = f"token_file = '{file}'"
        try:
            with file.open("rb") as opened:
                text = opened.read(MAX_TOKEN_BYTES + 1).decode("utf-8", "replace")
        except OSError as error:
            raise CommandError(f"{where}: {error.strerror or error}", Exit.REFUSED) from None
    token = text.strip()
    if file is not None and not token:
        raise CommandError(f"{where}: is empty", Exit.REFUSED)
    if len(token) > MAX_TOKEN_BYTES or not all("!" <= letter <= "~" for letter in token):
        raise CommandError(f"{where}: a token is printable ASCII on one line", Exit.REFUSED)
    return token or None


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
