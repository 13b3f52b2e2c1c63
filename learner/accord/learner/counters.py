"""What a learner counted for a pair: beside the state, because refusals must not change what is known."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from .errors import Reason, Refusal


@dataclass
class Counters:
    """Counts since the pair was first learnt.

    Attributes:
        summaries, rounds, labels: learnt.
        rounds_missing: rounds whose numbers were skipped: never sent, or trimmed before they were read.
        refused: summaries refused, by reason.
        guarded: publications in which the guard kept a workload's old coefficients.
        fits: refits by how they ended.
        last_refusal: reason, detail and stream id of the newest refusal.
        alarms: memories shortened, by detector; aside: labels set aside, because one engine contradicted the others.
        sketches_aside: labels of sketches that do not count: their engine contradicted the others, or itself.
        returned: workloads whose last good coefficients came back.
        rewinds: times that the store came back older than a commit that it had acknowledged, as after a failover.
        shared: summaries that came from two processes in turn under one engine name; last_shared names the newest.
        overflowed: labels of workloads that a pair had no room for, in summaries that were learnt but for them.
        displaced: workloads that were forgotten because the room was needed for others.
    """

    summaries: int = 0
    rounds: int = 0
    labels: int = 0
    rounds_missing: int = 0
    guarded: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    fits: dict[str, int] = field(default_factory=dict)
    last_refusal: dict[str, str] = field(default_factory=dict)
    aside: int = 0
    sketches_aside: int = 0
    returned: int = 0
    rewinds: int = 0
    shared: int = 0
    last_shared: dict[str, str] = field(default_factory=dict)
    overflowed: int = 0
    displaced: int = 0
    alarms: dict[str, int] = field(default_factory=dict)

    def refuse(self, refusal: Refusal, entry_id: str) -> None:
        """Counts one refused summary."""
        reason = refusal.reason.value
        self.refused[reason] = self.refused.get(reason, 0) + 1
        self.last_refusal = {"reason": reason, "detail": refusal.detail[:300], "entry": entry_id}

    def overflow(self, labels: int, workloads: int, entry_id: str) -> None:
        """Counts what a summary said of workloads for which there was no room."""
        self.overflowed += labels
        detail = f"{labels} labels of {workloads} workloads for which the pair has no room"
        self.last_refusal = {"reason": Reason.WORKLOADS.value, "detail": detail, "entry": entry_id}

    def fitted(self, status: str) -> None:
        """Counts one refit."""
        self.fits[status] = self.fits.get(status, 0) + 1

    def share(self, engine: str, boot: str, other: str) -> None:
        """Counts one summary of a boot that goes on after another one of the same engine was heard."""
        self.shared += 1
        self.last_shared = {"engine": engine, "boot": boot, "other": other}

    def alarmed(self, detector: str) -> None:
        """Counts one memory shortened."""
        self.alarms[detector] = self.alarms.get(detector, 0) + 1

    def encode(self) -> bytes:
        """Canonical bytes."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes | None) -> Counters:
        """The inverse of `encode`; fields that this version does not know are left out.

        Raises:
            Refusal: for bytes that `encode` does not write.
        """
        try:
            values = json.loads(data) if data else {}
        except (ValueError, RecursionError) as error:
            raise Refusal(Reason.SCHEMA, f"counters are not understood: {error!r:.200}") from None
        fresh = cls()
        if not isinstance(values, dict):
            raise Refusal(Reason.SCHEMA, "counters are not an object")
        for name in cls.__dataclass_fields__:
            value = values.get(name, getattr(fresh, name))
            if type(value) is not type(getattr(fresh, name)):
                raise Refusal(Reason.SCHEMA, f"counter {name} is {value!r:.80}")
            setattr(fresh, name, value)
        return fresh
