"""The secrets of one deployment: Redis users, tokens, and the environments that carry them."""

from __future__ import annotations

import os
from pathlib import Path

from accord.learner.errors import AccordError
from accord.learner.store.acl import DEFAULT, HEALTH, RedisRole, RedisUser, administrator
from accord.learner.store.acl import create as create_user

from .roles import Role
from .tokens import ROLES
from .tokens import create as create_token


class DeploymentError(AccordError):
    """The folder cannot be used."""


def write_secrets(folder: Path) -> list[Path]:
    """Writes fresh secrets for `docker/compose.yaml` into a folder that holds none.

    Files that a container reads are readable for everybody, because its user is not the host's; the folder above them
    is not.

    Raises:
        DeploymentError: when there is something already, which is left as it is, or nothing can be written.
    """
    passwords: dict[RedisRole, str] = {}
    users: list[RedisUser] = [DEFAULT, HEALTH]
    for role in RedisRole:
        passwords[role], user = create_user(role)
        users.append(user)
    administering, admin = administrator()
    users.append(admin)
    tokens = {role: create_token(role.value, role) for role in ROLES}
    where = str(folder.resolve() / "engine" / "token")
    files = {
        "redis/users.acl": ("".join(f"{user.line()}\n" for user in users), 0o644),
        "api/tokens": ("".join(f"{entry.line()}\n" for _, entry in tokens.values()), 0o644),
        "engine/token": (f"{tokens[Role.ENGINE][0]}\n", 0o644),
        "prometheus/token": (f"{tokens[Role.VIEWER][0]}\n", 0o644),
        "viewer.token": (f"{tokens[Role.VIEWER][0]}\n", 0o600),
        "redis-admin.password": (f"{administering}\n", 0o600),
        "operator.token": (f"{tokens[Role.OPERATOR][0]}\n", 0o600),
        **{f"{role}.env": (f"ACCORD_REDIS_URL={_url(role, passwords[role], 'redis')}\n", 0o600) for role in RedisRole},
        "host.env": (
            f"ACCORD_REDIS_URL={_url(RedisRole.ENGINE, passwords[RedisRole.ENGINE], '127.0.0.1')}\n"
            f"ACCORD_API_URL=http://127.0.0.1:8790\nACCORD_API_TOKEN_FILE='{where}'\n",
            0o600,
        ),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if found := sorted(item.name for item in folder.iterdir()):
            raise DeploymentError(f"{folder} holds {found[0]} already: move it away to make new secrets")
        return [_write(folder / name, text, mode) for name, (text, mode) in files.items()]
    except OSError as error:
        raise DeploymentError(f"{folder} cannot be used: {error.strerror or error}") from None


def _url(role: RedisRole, password: str, host: str) -> str:
    return f"redis://{role}:{password}@{host}:6379/0"


def _write(path: Path, text: str, mode: int) -> Path:
    path.parent.mkdir(exist_ok=True, mode=0o755)
    with open(path, "w", encoding="ascii", opener=lambda name, flags: os.open(name, flags | os.O_EXCL, mode)) as file:
        file.write(text)
    # Whatever the process' mask took away: a container must read what is its own.
    path.chmod(mode)
    if path.parent.name in ("redis", "api", "engine", "prometheus"):
        path.parent.chmod(0o755)
    return path
