"""A token file with one token of every role, for tests."""

from __future__ import annotations

import os
from pathlib import Path

from accord.api.auth.roles import Role
from accord.api.auth.tokens import ROLES, create


class TokenFile:
    """The file, and the tokens that only a test knows.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[str] = []
        self.tokens = {role: self.add(f"{role.value}-1", role) for role in ROLES}

    def add(self, name: str, role: Role, not_after: str | None = None) -> str:
        """One more token, in force once the server has seen it."""
        token, entry = create(name, role, not_after)
        self.lines.append(entry.line())
        self.write()
        return token

    def write(self, text: str | None = None) -> None:
        """Replaces the file in one step, as an operator should."""
        part = self.path.with_suffix(".part")
        part.write_text("\n".join(self.lines) + "\n" if text is None else text)
        os.replace(part, self.path)


def bearer(token: str) -> dict[str, str]:
    """The header."""
    return {"Authorization": f"Bearer {token}"}
