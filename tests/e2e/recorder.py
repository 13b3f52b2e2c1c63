"""What ever stood in a stream, also after a learner trimmed it: read from the server's append-only file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from accord.learner.pair_learner import Entry
from accord.learner.store import PairKeys
from accord.learner.store.records import stream_id

NO_REWRITE = ("--auto-aof-rewrite-percentage", "0")
"""Server options that keep every command in the file."""


def recorded(data_dir: Path, pair_id: str, *, moved: bool = False) -> list[Entry]:
    """Every entry that was ever added to a pair's stream, in order, with the id that it was learnt under.

    A stream that is made anew with its entries under other ids leaves only those: what it held is dropped, unless it
    may have `moved` to another node of a cluster, whose file then says nothing of what came along.
    """
    key = PairKeys(pair_id).rounds.encode()
    gone, held = list[Entry](), list[Entry]()
    for command in (command for data in _files(data_dir / "appendonlydir") for command in _commands(data)):
        name = command[0].upper()
        if len(command) < 2 or command[1] != key:
            continue
        if name == b"XADD":
            # XADD key [options] id field value: what is kept names the id that `*` became.
            held.append((command[-3].decode(), command[-1]))
        elif name == b"XTRIM":
            least = stream_id("minid", command[-1].decode())
            gone += [entry for entry in held if stream_id("id", entry[0]) < least]
            held = [entry for entry in held if stream_id("id", entry[0]) >= least]
        elif name == b"XDEL":
            # Made anew under another id, which was added before.
            held = [entry for entry in held if entry[0].encode() not in command[2:]]
        elif name == b"DEL" and not moved:
            held = []
    return gone + held


def _files(folder: Path, tries: int = 10) -> list[bytes]:
    """Every increment, oldest first. A replica that starts anew deletes the old ones while others look."""
    for left in reversed(range(tries)):
        try:
            return [path.read_bytes() for path in sorted(folder.glob("*.incr.aof"), key=_generation)]
        except FileNotFoundError:
            if not left:
                raise
    return []


def _generation(path: Path) -> int:
    return int(path.name.split(".")[-3])


def _commands(data: bytes) -> Iterator[list[bytes]]:
    """The commands of an append-only file, in the wire's own format: *count, then $length and bytes for each part."""
    at = 0
    # A server that was killed may leave half a command behind: it was never acknowledged.
    while (line := data.find(b"\r\n", at)) >= 0:
        head, at = data[at:line], line + 2
        if not head.startswith(b"*"):
            continue
        parts = []
        for _ in range(int(head[1:])):
            line = data.find(b"\r\n", at)
            if line < 0:
                return
            length, at = int(data[at + 1 : line]), line + 2
            if at + length > len(data):
                return
            parts.append(data[at : at + length])
            at += length + 2
        yield parts
