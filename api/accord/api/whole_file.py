"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, body: bytes) -> None:
    """Writes a file so that nobody ever reads half of it.

    A link stays a link to the file that is written. What is no regular file, such as `/dev/stdout`, a device or a pipe,
    is written to and never replaced.

    Raises:
        OSError: when it cannot be written; a file that was there before is then as it was.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(body)
        return
    path = path.resolve()
    # Not made of the file's name, which may already be as long as names can be.
    part = path.with_name(f".accord-{os.getpid()}.part")
    try:
        part.write_bytes(body)
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise
