"""What ever stood in a stream, also after a learner trimmed it: read from the server's append-only file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from accord.learner.pair_learner import Entry
from accord.learner.store import PairKeys

NO_REWRITE = ("--auto-aof-rewrite-percentage", "0")
"""Server options that keep every command in the file."""


def recorded(data_dir: Path, pair_id: str) -> list[Entry]:
    """Every entry that was ever added to a pair's stream, in order, with the id that the server gave it."""
    key = PairKeys(pair_id).rounds.encode()
    paths = sorted((data_dir / "appendonlydir").glob("*.incr.aof"))
    commands = (command for path in paths for command in _commands(path.read_bytes()))
    # XADD key [options] id field value: what is kept names the id that `*` became.
    return [(c[-3].decode(), c[-1]) for c in commands if c[0].upper() == b"XADD" and c[1] == key]


def _commands(data: bytes) -> Iterator[list[bytes]]:
    """The commands of an append-only file, in the wire's own format: *count, then $length and bytes for each part."""
    at = 0
    while at < len(data):
        line = data.index(b"\r\n", at)
        head, at = data[at:line], line + 2
        if not head.startswith(b"*"):
            continue
        parts = []
        for _ in range(int(head[1:])):
            line = data.index(b"\r\n", at)
            length, at = int(data[at + 1 : line]), line + 2
            parts.append(data[at : at + length])
            at += length + 2
        yield parts
