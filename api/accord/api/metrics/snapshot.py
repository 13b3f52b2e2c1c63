"""What one reading of the fleet found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """A workload: its key, all labels ever learnt, and metrics that are None where there is too little to say."""

    key: str
    labels: int
    accepted: float | None
    log_loss: float | None
    ece: float | None


@dataclass(frozen=True)
class Seen:
    """A pair as it was read.

    Attributes:
        pair: its id; version, published_ms: of the coefficients in force.
        owned: whether a learner holds it; waiting, waited_s: summaries not learnt yet, and the age of the oldest.
        engines: state -> how many.
        version_lag: by how many versions the last of the engines that follow is behind; behind: how many are.
        overrides: how many are in force.
    """

    pair: str
    version: int
    published_ms: int
    owned: bool
    waiting: int
    waited_s: float
    engines: Mapping[str, int]
    version_lag: int
    behind: int
    overrides: int = 0
    workloads: Sequence[Workload] = ()


@dataclass(frozen=True)
class Snapshot:
    """One reading.

    Attributes:
        read_at: when, on the event loop's clock.
        known: registered pairs; left_out: those beyond the limit; unreadable: those whose stored values are damaged.
        workloads_left_out: workloads beyond the limit.
    """

    read_at: float
    pairs: Sequence[Seen] = ()
    known: int = 0
    left_out: int = 0
    unreadable: int = 0
    workloads_left_out: int = 0
