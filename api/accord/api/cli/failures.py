"""How a command ends when it cannot do what it was asked for."""

from __future__ import annotations

from enum import IntEnum

from accord.learner.errors import AccordError


class Exit(IntEnum):
    """Exit codes of the operators' commands; `docs/cli.md` documents them."""

    DONE = 0
    REFUSED = 2
    """A value that cannot be used."""
    UNREACHABLE = 3
    """The api, or the store behind it, does not answer as it should."""
    NOT_ALLOWED = 4
    """The token is missing, wrong, or of a role that may not do this."""
    UNKNOWN = 5
    """There is no such pair, workload, version or override."""
    CONFLICT = 6
    """Somebody else changed it in the meantime; nothing was done."""


_BY_STATUS = {401: Exit.NOT_ALLOWED, 403: Exit.NOT_ALLOWED, 404: Exit.UNKNOWN, 409: Exit.CONFLICT, 412: Exit.CONFLICT}


class CommandError(AccordError):
    """A command that ends with another code than 0.

    Args:
        message: one line for stderr.
        code: the exit code.
    """

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.exit_code = int(code)


def of_status(status: int) -> Exit:
    """The exit code for an HTTP status that is no success.

    >>> of_status(412), of_status(422), of_status(503)
    (<Exit.CONFLICT: 6>, <Exit.REFUSED: 2>, <Exit.UNREACHABLE: 3>)
    """
    return _BY_STATUS.get(status, Exit.REFUSED if 400 <= status < 500 else Exit.UNREACHABLE)
