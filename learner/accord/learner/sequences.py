"""Which rounds of which engine were learnt: every round once, whatever the network did."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from .errors import Reason, Refusal

FORGET_AFTER_MS = 24 * 3600 * 1000
"""A boot that has been silent for a day of stream time is forgotten."""

MAX_BOOTS = 32_768
"""Boots that are remembered; beyond, those that have been silent longest are forgotten before their day is over."""

BURST_ROUNDS, ROUNDS_PER_S = 10_000, 1_000
"""How far a boot's numbers may run ahead at once, and more for each second since it was heard: no engine decodes a
round in a millisecond. Without a bound, one summary under another engine's name would make all that follow
duplicates."""


@dataclass
class Sequences:
    """The last round learnt of each boot of each engine.

    Attributes:
        last: (engine, boot) -> [last round, stream milliseconds of its arrival].
        newest: engine -> the boot that was heard last; only since this record was loaded.

    >>> seen = Sequences()
    >>> seen.admit("host/0", "00000000000000aa", 1, 3, 1000)
    0
    >>> seen.admit("host/0", "00000000000000aa", 6, 6, 1250)
    2
    """

    last: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    newest: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    def admit(self, engine: str, boot: str, first: int, last: int, at_ms: int) -> int:
        """Admits rounds first..last and returns how many rounds before them never arrived.

        Raises:
            Refusal: as `check` says.
        """
        known = self.check(engine, boot, first, last, at_ms)
        self.last[(engine, boot)] = [last, at_ms]
        return first - known - 1

    def check(self, engine: str, boot: str, first: int, last: int, at_ms: int) -> int:
        """The last round learnt before rounds first..last, which may be admitted.

        Raises:
            Refusal: duplicate when all of them were learnt before, overlap when some of them were, out_of_bounds when
                the boot cannot have come that far since it was heard.
        """
        known, heard_ms = self.last.get((engine, boot), (0, None))
        if last <= known:
            raise Refusal(Reason.DUPLICATE, f"rounds {first}..{last} of {engine}; learnt up to {known}")
        if first <= known:
            raise Refusal(Reason.OVERLAP, f"rounds {first}..{last} of {engine}; learnt up to {known}")
        if heard_ms is not None:
            most = known + BURST_ROUNDS + max(at_ms - heard_ms, 0) * ROUNDS_PER_S // 1000
            if last > most:
                raise Refusal(Reason.OUT_OF_BOUNDS, f"round {last} of {engine} so soon after {known}; at most {most}")
        return known

    def in_between(self, engine: str, boot: str) -> str | None:
        """The other boot that was heard since this one: two processes share an engine name. To be asked before `admit`.

        Nothing is mixed up, as rounds are numbered by boot, but each of the two hides the other's heartbeat.
        """
        other = self.newest.get(engine, boot)
        self.newest[engine] = boot
        return other if other != boot and (engine, boot) in self.last else None

    def forget(self, now_ms: int, heard_ms: int) -> None:
        """Drops boots that have been silent for a day in which others were heard.

        A day in which nobody was heard says nothing of anyone: the pair had no traffic, or the store's clock jumped.

        Args:
            now_ms, heard_ms: stream milliseconds of what was admitted last, and of what was before that.
        """
        gap_ms = now_ms - heard_ms
        if gap_ms > FORGET_AFTER_MS:
            for values in self.last.values():
                values[1] = min(values[1] + gap_ms, now_ms)
        silent = [key for key, (_, at_ms) in self.last.items() if now_ms - at_ms > FORGET_AFTER_MS]
        for key in silent:
            del self.last[key]
        if len(self.last) > MAX_BOOTS:
            newest_first = sorted(self.last.items(), key=lambda item: (-item[1][1], item[0]))
            self.last = dict(newest_first[:MAX_BOOTS])
        if len(self.newest) > MAX_BOOTS:
            self.newest = {engine: boot for engine, boot in self.newest.items() if (engine, boot) in self.last}

    def encode(self) -> bytes:
        """Canonical bytes."""
        rows = [[engine, boot, *values] for (engine, boot), values in sorted(self.last.items())]
        return json.dumps(rows, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes | None) -> Sequences:
        """The inverse of `encode`; None and empty bytes are an empty record.

        Raises:
            Refusal: for bytes that `encode` does not write.
        """
        try:
            rows = json.loads(data) if data else []
            last = {(engine, boot): [seq, at_ms] for engine, boot, seq, at_ms in rows}
        except (ValueError, TypeError, RecursionError) as error:
            raise Refusal(Reason.SCHEMA, f"sequences are not understood: {error!r:.200}") from None
        if not all(isinstance(part, str) for key in last for part in key):
            raise Refusal(Reason.SCHEMA, "sequences name engines and boots that are not text")
        if not all(type(value) is int and value >= 0 for values in last.values() for value in values):
            raise Refusal(Reason.SCHEMA, "sequences hold what is not a whole number >= 0")
        return cls(last)
