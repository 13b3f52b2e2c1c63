"""Where an engine is: the address that was given, and what is asked for under it."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from accord.learner.errors import AccordError, InvalidValue

MAX_URL = 2000


class AuditError(AccordError):
    """The engine cannot be audited; the message says why."""


@dataclass(frozen=True)
class Address:
    """An engine's server.

    Attributes:
        metrics: address of its metrics page.
        base: of everything else, without a slash at the end.

    >>> Address.of("http://127.0.0.1:8000/").metrics
    'http://127.0.0.1:8000/metrics'
    >>> Address.of("http://10.0.0.5:8000/v1").base
    'http://10.0.0.5:8000'
    """

    metrics: str
    base: str

    @classmethod
    def of(cls, text: str) -> Address:
        """From what people type: the server, its metrics page, or its OpenAI address.

        Raises:
            InvalidValue: for anything but an http or https address without a password, query or fragment.
        """
        if len(text) > MAX_URL:
            raise InvalidValue("url", text[:80], f"must have at most {MAX_URL} characters")
        try:
            url = httpx.URL(text.strip())
            host = url.host
            port = url.port if url.port is not None else 80
        except (httpx.InvalidURL, ValueError, TypeError):
            raise InvalidValue("url", text, "is not an address such as http://127.0.0.1:8000") from None
        if url.userinfo:
            raise InvalidValue("url", str(url.copy_with(userinfo=b"")), "must not hold a user or a password")
        plain = url.scheme in ("http", "https") and bool(host) and not url.query and not url.fragment
        if not plain or not 0 < port < 1 << 16:
            raise InvalidValue("url", text, "must be an address such as http://127.0.0.1:8000")
        path = url.path.rstrip("/")
        if path.endswith("/metrics"):
            return cls(
                str(url.copy_with(path=path)), str(url.copy_with(path=path.removesuffix("/metrics"))).rstrip("/")
            )
        base = str(url.copy_with(path=path.removesuffix("/v1") or "/")).rstrip("/")
        return cls(f"{base}/metrics", base)
