"""Rights of accord's processes in Redis (7 or newer), as lines of an ACL file.

Scripts run with the rights of whoever calls them: every command in a script is checked against its own key. Calling one
(EVAL, EVALSHA) asks for reading and writing every key that is passed, so that right stands in a selector of its own.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass, field
from enum import StrEnum

from ..errors import InvalidValue
from ..pair import check_pair_id
from .keys import CHANGES, LEARNERS, PAIRS, PREFIX

PASSWORD_BYTES = 32

_USER = re.compile(r"[a-z0-9][a-z0-9._-]{0,160}")
_CONNECT = ("+client|setname", "+script|load")
# Named one by one: a category grows with every version of the server.
_HASH = (
    "+hget",
    "+hmget",
    "+hgetall",
    "+hexists",
    "+hlen",
    "+hkeys",
    "+hvals",
    "+hscan",
    "+hset",
    "+hsetnx",
    "+hdel",
    "+hincrby",
)
_STREAM = ("+xadd", "+xrange", "+xrevrange", "+xlen", "+xread", "+xinfo|stream")
_SORTED = ("+zadd", "+zrem", "+zcard", "+zscore", "+zrange", "+zrangebyscore", "+zremrangebyscore")
_LOCKED = ("resetkeys", "resetchannels", "-@all")


class RedisRole(StrEnum):
    """Whose rights."""

    ENGINE = "engine"
    """Appends to rounds, beats its heart, registers its pair; reads nothing but that register."""
    LEARNER = "learner"
    """Everything of a pair, no administration."""
    API = "api"
    """Reads everything; writes overrides, what they put in force, history and audit. It cannot shorten a stream."""


@dataclass(frozen=True)
class RedisUser:
    """A line of an ACL file.

    Attributes:
        name: of the user.
        rules: its rights.
        password_hash: SHA-256 in hex, or None: nobody can log in then.
        enabled: whether anybody may log in at all.
    """

    name: str
    rules: tuple[str, ...]
    password_hash: str | None = field(default=None, repr=False)
    enabled: bool = True

    def line(self) -> str:
        """As the file has it. The hash is that of a random password, and as good as none to whoever reads it."""
        secret = () if self.password_hash is None else (f"#{self.password_hash}",)
        return " ".join(("user", self.name, "on" if self.enabled else "off", *secret, *self.rules))


DEFAULT = RedisUser("default", ("resetpass", "~*", "&*", "+@all"), enabled=False)
"""Nobody can log in as the default user, and it keeps every right: Redis reads its own append-only file as this user,
and leaves out whatever that user may not do. With fewer rights the effect of every script is lost at a restart."""

HEALTH = RedisUser("health", ("nopass", *_LOCKED, "+ping"))
"""For health checks: whoever says this name may ask whether the server lives, and nothing else."""


def rules(role: RedisRole, pair_id: str | None = None) -> tuple[str, ...]:
    """The least rights of a role.

    Args:
        role: whose.
        pair_id: the only pair that an engine may write to; all pairs without it.

    Raises:
        InvalidValue: for a pair id that is none, or for one of another role than engine.

    >>> rules(RedisRole.ENGINE, "a.b")[-1]
    '(+hset ~accord:{a.b}:engines)'
    """
    if pair_id is not None and role is not RedisRole.ENGINE:
        raise InvalidValue("pair", pair_id, "only an engine is bound to a pair")
    any_of_a_pair = f"{PREFIX}{{*}}:"
    if role is RedisRole.ENGINE:
        own = f"{PREFIX}{{{'*' if pair_id is None else check_pair_id(pair_id)}}}:"
        return (
            *_LOCKED,
            *_CONNECT,
            f"(+evalsha +time +hsetnx +hget ~{PAIRS})",
            f"(+xadd ~{own}rounds)",
            f"(+hset ~{own}engines)",
        )
    common = (*_LOCKED, *_CONNECT, "+ping", "+time", *_HASH, *_STREAM, "+publish", f"&{CHANGES}")
    if role is RedisRole.LEARNER:
        return (
            *common,
            "+xtrim",
            *_SORTED,
            f"%R~{PAIRS}",
            f"~{LEARNERS}",
            f"~{any_of_a_pair}*",
            f"(+evalsha ~{PREFIX}*)",
            f"(+del +xdel +xsetid ~{any_of_a_pair}rounds)",
        )
    written = ("overrides", "coefficients", "history", "audit")
    return (
        *common,
        "+subscribe",
        "+unsubscribe",
        "+zrangebyscore",
        f"%R~{PREFIX}*",
        *(f"~{any_of_a_pair}{part}" for part in written),
        f"(+eval +evalsha ~{PREFIX}*)",
    )


def create(role: RedisRole, pair_id: str | None = None, name: str | None = None) -> tuple[str, RedisUser]:
    """A fresh random password, and the user that has it; named by its role, and pair, unless told otherwise.

    Raises:
        InvalidValue: for a name or a pair id that cannot be used.
    """
    found = name or (role.value if pair_id is None else f"{role.value}-{pair_id}")
    if not _USER.fullmatch(found):
        raise InvalidValue("user", found, "must match [a-z0-9][a-z0-9._-]{0,160}")
    return _with_password(found, rules(role, pair_id))


def administrator() -> tuple[str, RedisUser]:
    """A fresh password, and the user `admin`, who may do everything: for people, never for a process of accord's."""
    return _with_password("admin", ("~*", "&*", "+@all"))


def _with_password(user: str, rights: tuple[str, ...]) -> tuple[str, RedisUser]:
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    return password, RedisUser(user, rights, hashlib.sha256(password.encode()).hexdigest())


def template() -> str:
    """A file of all roles without passwords: for reading, and to paste `#<sha256 of the password>` into."""
    users = [DEFAULT, HEALTH, *(RedisUser(role.value, rules(role)) for role in RedisRole)]
    return "".join(f"{user.line()}\n" for user in users)
