"""What an engine counted, written so that it outlives SIGKILL: the pages of a mapped file belong to the kernel."""

from __future__ import annotations

import json
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

FIELDS = ("observed", "rounds_sent", "stopped", "unsent")
_FORMAT = f"<{len(FIELDS)}q"
_STEP = struct.Struct("<ddd")


class Book:
    """One boot of one engine, written by the engine's own thread.

    Args:
        folder: one for all engines.
        boot, engine, pair, process: who writes.
    """

    def __init__(self, folder: Path, boot: str, engine: str, pair: str, process: str) -> None:
        head = {"boot": boot, "engine": engine, "pair": pair, "process": process}
        size = struct.calcsize(_FORMAT)
        (folder / f"{boot}.counts").write_bytes(bytes(size))
        with (folder / f"{boot}.counts").open("r+b") as file:
            self._counts = mmap.mmap(file.fileno(), size)
        self._rounds = (folder / f"{boot}.rounds").open("ab", buffering=0)
        self._steps = (folder / f"{boot}.steps").open("ab", buffering=20 * _STEP.size)
        (folder / f"{boot}.json").write_text(json.dumps(head))

    def set(self, name: str, value: int) -> None:
        """Replaces one count."""
        struct.pack_into("<q", self._counts, 8 * FIELDS.index(name), value)

    def round(self, seq: int, labels: int) -> None:
        """A round that is about to be put; it may be sent at once."""
        self._rounds.write(f"{seq} {labels}\n".encode())

    def step(self, at: float, wall_s: float, cpu_s: float) -> None:
        """One decode step that ended at a monotonic time: what our calls took, by the clock and of the processor."""
        self._steps.write(_STEP.pack(at, wall_s, cpu_s))

    def close(self) -> None:
        """After the last call."""
        self._rounds.close()
        self._steps.close()


@dataclass(frozen=True)
class Account:
    """What one boot of an engine left behind.

    Attributes:
        observed: labels that it counted.
        rounds_sent: rounds acknowledged by the store, at least.
        stopped: whether it ended in order.
        unsent: labels that it said were unsent when it ended in order.
        rounds: sequence number -> labels.
        steps: (monotonic end, seconds by the clock, seconds of the processor).
    """

    boot: str
    engine: str
    pair: str
    process: str
    observed: int
    rounds_sent: int
    stopped: bool
    unsent: int
    rounds: dict[int, int]
    steps: list[tuple[float, float, float]]


def accounts(folder: Path) -> list[Account]:
    """Every boot of every engine."""
    found = []
    for path in sorted(folder.glob("*.json")):
        head = json.loads(path.read_text())
        observed, sent, stopped, unsent = struct.unpack(_FORMAT, path.with_suffix(".counts").read_bytes())
        lines = path.with_suffix(".rounds").read_text().splitlines()
        rounds = {int(seq): int(labels) for seq, labels in (line.split() for line in lines)}
        raw = path.with_suffix(".steps").read_bytes()
        steps = list(_STEP.iter_unpack(raw[: len(raw) // _STEP.size * _STEP.size]))
        # A kill between a step and its count: what was put was counted.
        observed = max(observed, sum(rounds.values()))
        found.append(Account(**head, observed=observed, rounds_sent=sent, stopped=bool(stopped), unsent=unsent,
                             rounds=rounds, steps=steps))  # fmt: skip
    return found
