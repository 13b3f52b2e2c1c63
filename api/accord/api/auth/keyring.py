"""The token file, followed while the server runs."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path

from ..logs import event
from .tokens import MAX_FILE_BYTES, TokenFileError, TokenSet, digest_of, parse

CHECK_EVERY_S = 1.0
SETTLED_S = 3.0
"""A file that was written this recently may be written once more within one tick of its clock: it is read again."""

_Stamp = tuple[int, int, int, int]


class Keyring:
    """The tokens of a file, the last good ones while the file is damaged or away.

    Args:
        path: of the file, read at once.

    Attributes:
        tokens: those in force; replaced as a whole.

    Raises:
        TokenFileError: naming the file, and the line, when it cannot be used.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._stamp: _Stamp | None = None
        self._content = b""
        self._fault = ""
        try:
            self._stamp, content = self._read()
            self.tokens = self._parsed(content)
        except (OSError, TokenFileError) as error:
            raise TokenFileError(f"ACCORD_API_TOKENS_FILE = {str(self.path)!r:.200}: {_why(error)}") from None
        mode = os.stat(self.path).st_mode
        if mode & 0o002:
            event("token file is writable for everybody", level=logging.WARNING, file=str(self.path))

    def refresh(self) -> bool:
        """Looks whether the file has changed; True when other tokens are in force now. Never raises for the file."""
        try:
            if not self._may_have_changed():
                return False
            self._stamp, content = self._read()
            if digest_of(content) == self._content:
                self._recovered()
                return False
            self.tokens = self._parsed(content)
        except (OSError, TokenFileError) as error:
            self._damaged(_why(error))
            return False
        self._fault = ""
        event("tokens read", file=str(self.path), tokens=len(self.tokens.entries))
        return True

    async def follow(self) -> None:
        """Refreshes for ever, off the event loop: a file may lie on a slow disk."""
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            await asyncio.to_thread(self.refresh)

    def _may_have_changed(self) -> bool:
        stamp = _stamp(os.stat(self.path))
        return stamp != self._stamp or time.time() - stamp[0] / 1e9 < SETTLED_S or bool(self._fault)

    def _read(self) -> tuple[_Stamp, bytes]:
        with open(self.path, "rb") as file:
            stamp = _stamp(os.fstat(file.fileno()))
            return stamp, file.read(MAX_FILE_BYTES + 1)

    def _parsed(self, content: bytes) -> TokenSet:
        tokens = TokenSet(parse(content))
        self._content = digest_of(content)
        return tokens

    def _damaged(self, why: str) -> None:
        # One line for each fault, not one a second.
        if why != self._fault:
            self._fault = why
            event("token file refused, the tokens before stay", level=logging.ERROR, file=str(self.path), reason=why)

    def _recovered(self) -> None:
        if self._fault:
            self._fault = ""
            event("token file is as before", file=str(self.path))


def _stamp(found: os.stat_result) -> _Stamp:
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev


def _why(error: Exception) -> str:
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)
