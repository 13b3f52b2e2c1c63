"""`accord redis-acl`: users of Redis with the least rights."""

from __future__ import annotations

from typing import Annotated

import typer

from .errors import InvalidValue
from .store.acl import RedisRole, create, template


def redis_acl(
    role: Annotated[str, typer.Option(help="engine, learner or api.")] = "engine",
    pair: Annotated[str | None, typer.Option(help="The only pair that an engine may write to.")] = None,
    user: Annotated[str | None, typer.Option(help="Name of the user; the role, and pair, by default.")] = None,
    rules: Annotated[bool, typer.Option("--rules", help="Print all roles without passwords, and stop.")] = False,
) -> None:
    """Print a Redis user with the least rights of a role: the line of an ACL file, and a fresh password, once.

    The password goes to standard error and the line to standard output, so that `>> users.acl` stores the line alone.
    ACL LOAD puts it in force; on a server without an ACL file, give the line's words to ACL SETUSER.
    """
    if rules:
        typer.echo(template(), nl=False)
        return
    try:
        wanted = RedisRole(role)
    except ValueError:
        raise InvalidValue("role", role, "must be engine, learner or api") from None
    password, made = create(wanted, pair, user)
    typer.echo(f"password of {made.name}, shown only now: {password}", err=True)
    typer.echo(made.line())
