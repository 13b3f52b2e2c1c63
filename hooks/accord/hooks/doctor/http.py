"""One bounded GET of the API, as an engine's own client is set up."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from accord.learner.coefficients import MAX_TABLE_BYTES

from ..credentials import Credentials
from ..settings import AgentSettings

MAX_BODY_BYTES = 4 * MAX_TABLE_BYTES


@dataclass(frozen=True)
class Reply:
    """What came back.

    Attributes:
        status, headers, body: of the response.
        began_s, took_s: unix time of the request, and how long the answer took.
        tls: protocol and end of the certificate (unix time), or None without TLS.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    began_s: float
    took_s: float
    tls: tuple[str, float | None] | None


class Http:
    """Sends the token, follows no redirect, uses no proxy, and verifies certificates: what engines do.

    Raises:
        CredentialError: for a file of a token or an authority that cannot be used.
    """

    def __init__(self, settings: AgentSettings, seconds: float) -> None:
        self.url = (settings.api_url or "").rstrip("/")
        credentials = Credentials.of(settings)
        token = credentials.token()
        self._authorization = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._client = httpx.Client(
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "accord-doctor"},
            timeout=seconds,
            follow_redirects=False,
            trust_env=False,
            verify=credentials.verify(self.url),
        )

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def get(self, path: str, *, token: bool = True) -> Reply:
        """One GET.

        Raises:
            httpx.HTTPError: for everything that a network does, and for a body that never ends.
        """
        began, before = time.time(), time.perf_counter()
        with self._client.stream("GET", self.url + path, headers=self._authorization if token else {}) as response:
            took = time.perf_counter() - before
            body = b""
            for part in response.iter_raw():
                body += part
                if len(body) > MAX_BODY_BYTES:
                    raise httpx.ReadError(f"a body of more than {MAX_BODY_BYTES} bytes")
            return Reply(response.status_code, response.headers, body, began, took, _tls(response))


def _tls(response: httpx.Response) -> tuple[str, float | None] | None:
    stream: Any = response.extensions.get("network_stream")
    found = stream.get_extra_info("ssl_object") if stream is not None else None
    if found is None:
        return None
    end = (found.getpeercert() or {}).get("notAfter")
    return str(found.version()), float(ssl.cert_time_to_seconds(end)) if end else None
