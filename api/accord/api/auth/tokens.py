"""Tokens, and the file that holds their hashes.

A line of the file is `name role sha256:<64 hex digits>`, and may end with `not_after=<RFC 3339 time>`. Empty lines and
lines that begin with # say nothing. A name may have several tokens of the same role, so that a new one can be handed
out before the old one ends.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime

from accord.learner.errors import AccordError, InvalidValue

from .roles import Principal, Role

PREFIX = "accord_"
"""Lets people and secret scanners see what a string is."""
RANDOM_BYTES = 32
MAX_FILE_BYTES = 1 << 20
MAX_TOKENS = 5_000
ROLES = (Role.ENGINE, Role.VIEWER, Role.OPERATOR)

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_HASH = re.compile(r"sha256:([0-9a-fA-F]{64})")


class TokenFileError(AccordError):
    """The file cannot be used; the message names the line, and never shows what is in it."""


@dataclass(frozen=True)
class Entry:
    """One token, as the file knows it.

    Attributes:
        principal: whose it is.
        digest: SHA-256 of the token, 32 bytes.
        not_after_s: unix time at which it ends, or None.
    """

    principal: Principal
    digest: bytes
    not_after_s: float | None = None

    def line(self) -> str:
        """The line of the file."""
        end = "" if self.not_after_s is None else f" not_after={_shown(self.not_after_s)}"
        return f"{self.principal.name} {self.principal.role} sha256:{self.digest.hex()}{end}"


def digest_of(token: bytes) -> bytes:
    """SHA-256. A token has 256 random bits, so nobody finds it by trying, however fast a hash is."""
    return hashlib.sha256(token).digest()


def create(name: str, role: Role, not_after: str | None = None) -> tuple[str, Entry]:
    """A fresh random token, and its entry.

    Raises:
        InvalidValue: for a name or a time that the file could not hold.
    """
    if not _NAME.fullmatch(name):
        raise InvalidValue("name", name, "must match [a-z0-9][a-z0-9._-]{0,63}")
    if role not in ROLES:
        raise InvalidValue("role", role.value, "must be engine, viewer or operator")
    end = None if not_after is None else _time(not_after)
    if not_after is not None and end is None:
        raise InvalidValue("not_after", not_after, "must be a time such as 2030-01-31T00:00:00Z")
    token = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    return token, Entry(Principal(name, role), digest_of(token.encode()), end)


def parse(content: bytes) -> tuple[Entry, ...]:
    """Every token of a file.

    Raises:
        TokenFileError: for a file without tokens, or with a line that is none.

    >>> entries = parse(b"ops operator sha256:" + b"0" * 64)
    >>> entries[0].principal
    Principal(name='ops', role=<Role.OPERATOR: 'operator'>)
    """
    if len(content) > MAX_FILE_BYTES:
        raise TokenFileError(f"more than {MAX_FILE_BYTES} bytes")
    entries: list[Entry] = []
    roles: dict[str | None, Role] = {}
    seen: dict[bytes, int] = {}
    for number, raw in enumerate(content.split(b"\n"), start=1):
        words = _words(number, raw)
        if not words:
            continue
        entry = _entry(number, words)
        if entry.digest in seen:
            raise TokenFileError(f"line {number}: the token of line {seen[entry.digest]} once more")
        if roles.setdefault(entry.principal.name, entry.principal.role) is not entry.principal.role:
            raise TokenFileError(f"line {number}: this name has another role in a line before")
        seen[entry.digest] = number
        entries.append(entry)
        if len(entries) > MAX_TOKENS:
            raise TokenFileError(f"line {number}: more than {MAX_TOKENS} tokens")
    if not entries:
        # A file that is being written looks like this for a moment.
        raise TokenFileError("no tokens in it")
    return tuple(entries)


class TokenSet:
    """The tokens in force, and which of them have already been shown.

    Looking for a new token compares it with every entry, however early one fits. A digest that was found once is
    remembered, so that the polls of a fleet cost one hash each.

    Args:
        entries: as parsed.
    """

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self.entries = entries
        self._known: dict[bytes, Entry] = {}

    def find(self, digest: bytes) -> Entry | None:
        """The entry of a token, ended or not."""
        known = self._known.get(digest)
        if known is not None:
            return known
        found = None
        for entry in self.entries:
            if hmac.compare_digest(entry.digest, digest):
                found = entry
        if found is not None:
            self._known[found.digest] = found
        return found


def _words(number: int, raw: bytes) -> list[str]:
    try:
        text = raw.decode("ascii").strip()
    except UnicodeDecodeError:
        if raw.lstrip().startswith(b"#"):
            return []
        raise TokenFileError(f"line {number}: a character that is not ASCII") from None
    return [] if text.startswith("#") else text.split()


def _entry(number: int, words: list[str]) -> Entry:
    if not 3 <= len(words) <= 4:
        raise TokenFileError(f"line {number}: must be: name role sha256:<64 hex digits> [not_after=<time>]")
    name, role, hashed = words[:3]
    if not _NAME.fullmatch(name):
        raise TokenFileError(f"line {number}: the name must match [a-z0-9][a-z0-9._-]{{0,63}}")
    if role not in ROLES:
        raise TokenFileError(f"line {number}: the role must be engine, viewer or operator")
    found = _HASH.fullmatch(hashed)
    if not found:
        raise TokenFileError(f"line {number}: the hash must be sha256: and 64 hex digits")
    end = None
    if len(words) == 4:
        key, _, value = words[3].partition("=")
        end = _time(value)
        if key != "not_after" or end is None:
            raise TokenFileError(f"line {number}: the end must be not_after= and a time such as 2030-01-31T00:00:00Z")
    return Entry(Principal(name, Role(role)), bytes.fromhex(found[1]), end)


def _time(text: str) -> float | None:
    try:
        found = datetime.fromisoformat(text) if "T" in text else None
    except ValueError:
        return None
    # A time without its zone would end at another moment on another machine.
    if found is None or found.tzinfo is None or not 1970 < found.year < 9999:
        return None
    return found.timestamp()


def _shown(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
