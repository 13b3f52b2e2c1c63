"""Tells from a request's headers who calls."""

from __future__ import annotations

import ipaddress
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import lru_cache
from urllib.parse import urlsplit

from accord.learner.bounds import MAX_TOKEN_BYTES

from .keyring import Keyring
from .roles import ANYBODY
from .throttle import Throttle
from .tokens import Entry, digest_of

# The alphabet of RFC 6750; whatever else stands there is no token of anybody.
_BEARER = re.compile(rb"bearer[ ]+([A-Za-z0-9._~+/-]+=*)[ ]*", re.IGNORECASE)
_LOCAL_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})

Headers = Sequence[tuple[bytes, bytes]]


class Refused(StrEnum):
    """Why a request has no principal."""

    MISSING = "missing"
    """No Authorization header."""
    MALFORMED = "malformed"
    """Headers that hold no bearer token, or more than one."""
    UNKNOWN = "unknown"
    """A token of nobody."""
    EXPIRED = "expired"
    """A token whose time is over."""
    NOT_LOCAL = "not_local"
    """No tokens are set, and the request came by another name than this machine's own."""


class Auth:
    """Who calls, for every request.

    Args:
        keyring: the tokens, or None: then everybody may do everything, and must be local unless `insecure`.
        insecure: without tokens, also whoever comes from elsewhere.
        now: unix seconds.

    Attributes:
        throttle: slows wrong tokens.
        refusals: how many requests were refused, by reason.
    """

    def __init__(self, keyring: Keyring | None, insecure: bool = False, now: Callable[[], float] = time.time) -> None:
        self.keyring = keyring
        self.throttle = Throttle()
        self.refusals: Counter[Refused] = Counter()
        self._insecure, self._now = insecure, now
        self._anybody = Entry(ANYBODY, b"")

    def identify(self, headers: Headers) -> Entry | Refused:
        """The token by which somebody calls, or why nobody does. Never raises, whatever the headers hold."""
        if self.keyring is None:
            return self._anybody if self._insecure or _is_local(headers) else Refused.NOT_LOCAL
        shown = [value for name, value in headers if name == b"authorization"]
        if not shown:
            return Refused.MISSING
        found = _BEARER.fullmatch(shown[0]) if len(shown) == 1 else None
        if found is None or len(found[1]) > MAX_TOKEN_BYTES:
            return Refused.MALFORMED
        entry = self.keyring.tokens.find(digest_of(found[1]))
        if entry is None:
            return Refused.UNKNOWN
        if entry.not_after_s is not None and self._now() >= entry.not_after_s:
            return Refused.EXPIRED
        return entry

    def holds(self, caller: Entry) -> bool:
        """Whether the token that somebody called by is still in force, with the same rights."""
        if self.keyring is None:
            return True
        entry = self.keyring.tokens.find(caller.digest)
        if entry is None or entry.principal != caller.principal:
            return False
        return entry.not_after_s is None or self._now() < entry.not_after_s


def _is_local(headers: Headers) -> bool:
    """Whether a request names this machine by a name of its own.

    A page from elsewhere can make a browser send requests to loopback, under a name that its owner points there.
    """
    for name, value in headers:
        if name == b"host" and not _local_name(value):
            return False
        if name == b"origin" and not _local_name(_netloc(value.decode("latin-1")).encode("latin-1")):
            return False
    return True


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc or "null"
    except ValueError:
        return "null"


@lru_cache(256)
def _local_name(netloc: bytes) -> bool:
    host = re.sub(r":[0-9]*$", "", netloc.decode("latin-1")).strip("[]").lower()
    if host in _LOCAL_NAMES or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
