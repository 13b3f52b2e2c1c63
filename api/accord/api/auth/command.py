"""Make tokens for engines, viewers and operators."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accord.learner.errors import InvalidValue

from .deployment import write_secrets
from .roles import Role
from .tokens import create

token = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)


@token.callback()
def _token() -> None:
    """Make tokens for engines, viewers and operators."""


@token.command("create")
def create_token(
    name: Annotated[str, typer.Option(help="Whose it is: [a-z0-9._-], shown in the audit trail.")],
    role: Annotated[str, typer.Option(help="engine, viewer or operator.")],
    not_after: Annotated[str | None, typer.Option(help="When it ends, such as 2030-01-31T00:00:00Z.")] = None,
) -> None:
    """Print a fresh token, once, and the line for ACCORD_API_TOKENS_FILE.

    The token goes to standard error, the line to standard output, so that `>> tokens` stores the line alone. Nothing
    else keeps the token.
    """
    try:
        wanted = Role(role)
    except ValueError:
        raise InvalidValue("role", role, "must be engine, viewer or operator") from None
    secret, entry = create(name, wanted, not_after)
    typer.echo(f"token, shown only now: {secret}", err=True)
    typer.echo(entry.line())


def make_secrets(
    folder: Annotated[Path, typer.Argument(help="An empty folder, or one to be made.")] = Path("docker/secrets"),
) -> None:
    """Make the secrets of a deployment with docker/compose.yaml: Redis users, tokens, environments."""
    for path in write_secrets(folder):
        typer.echo(str(path))
