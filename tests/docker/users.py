"""A real server with the users that a deployment has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from accord.api.auth.deployment import write_secrets
from accord.learner.embedded import EmbeddedServer
from accord.learner.store.acl import RedisRole

EVERYTHING = "~* &* +@all"


class Deployed:
    """The server, and how each role reaches it.

    Args:
        server: with the users in force.
        folder: of the secrets.
    """

    def __init__(self, server: EmbeddedServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        password = (folder / "redis-admin.password").read_text().strip()
        self.admin = redis.Redis(port=server.port, username="admin", password=password)

    def url(self, role: RedisRole) -> str:
        """As the deployment's environment has it, on this server."""
        text = (self.folder / f"{role}.env").read_text()
        return re.sub(r"@redis:6379", f"@127.0.0.1:{self.server.port}", text.strip().partition("=")[2])

    def password(self, role: RedisRole) -> str:
        """Of a role."""
        return self.url(role).split(":")[2].partition("@")[0]

    def refused(self) -> list[str]:
        """What users were refused since the last call; CLIENT SETINFO, which Redis 7.0 does not know, left out."""
        log = self.admin.execute_command("ACL", "LOG")
        self.admin.execute_command("ACL", "LOG", "RESET")
        entries = [dict(zip(item[::2], item[1::2], strict=True)) if isinstance(item, list) else item for item in log]
        told = [
            " ".join(_text(entry, name) for name in ("username", "reason", "context", "object")) for entry in entries
        ]
        return [line for line in told if "setinfo" not in line]


@contextmanager
def deployed(folder: Path) -> Iterator[Deployed]:
    """A server that has read the ACL file of fresh secrets."""
    write_secrets(folder)
    users = folder / "redis" / "users.acl"
    strict = users.read_text()
    users.write_text(f"user default on nopass {EVERYTHING}\n")
    with EmbeddedServer(folder / "data", options=["--aclfile", str(users)]) as server:
        users.write_text(strict)
        with redis.Redis.from_url(server.url) as client:
            client.execute_command("ACL", "LOAD")
        found = Deployed(server, folder)
        try:
            yield found
        finally:
            found.admin.close()


def _text(entry: dict[object, object], name: str) -> str:
    value = entry.get(name.encode(), entry.get(name, ""))
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
