"""How the ranks of a tensor-parallel group stay alike: they agree once, and the first one broadcasts at boundaries."""

from __future__ import annotations

import json
import time
from typing import Any, NamedTuple, Protocol

from .rows import Rows

PROTOCOL = 1
"""Of the agreement and the broadcast. Ranks that speak different ones do not agree, and all of them stay stock."""

LEADER_WAITS_S, OTHERS_WAIT_S = 180.0, 400.0
POLL_S = 0.02
READY, TAKEN, GONE = "ready", "taken", "gone"


class Group(Protocol):
    """The part of vLLM's `GroupCoordinator` that is used."""

    world_size: int
    rank_in_group: int

    def broadcast_object(self, obj: Any = None, src: int = 0) -> Any:
        """What the first rank passed, on every rank."""


class KeyStore(Protocol):
    """The part of `torch.distributed.Store` that is used."""

    def set(self, key: str, value: str) -> None:
        """Sets a key."""

    def get(self, key: str) -> bytes:
        """The value of a key that is there."""

    def check(self, keys: list[str]) -> bool:
        """Whether all keys are there, at once."""

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Sets a key if it has the expected value; returns what it has then."""


class Boundary(NamedTuple):
    """What the first rank says at a round boundary.

    Attributes:
        step: decode steps so far.
        closed: whether the round ended: its sums are on their way to the host. If not, everything stays as it is.
        state, version: what is in force from now on.
        keys: the workload of every slot.
        rows: the table, None when it is the one before.
    """

    step: int
    closed: bool
    state: str
    version: int
    keys: tuple[str | None, ...]
    rows: Rows | None

    def pack(self) -> tuple[Any, ...]:
        """Plain values: nothing of ours has to be found by name at the other end."""
        table = None if self.rows is None else (self.rows.names, self.rows.values.tobytes(), self.rows.f)
        return PROTOCOL, *self[:-1], table

    @classmethod
    def unpack(cls, values: tuple[Any, ...]) -> Boundary:
        """The inverse of `pack`."""
        _, step, closed, state, version, keys, table = values
        return cls(step, closed, state, version, keys, None if table is None else Rows.parse(*table))


class Ranks:
    """Sends a boundary from the first rank to all.

    Every rank calls `share` at the same point of the same step, so nobody waits longer than that rank is behind. What
    the transport raises is not caught: a group that cannot broadcast cannot run the model either, and ranks that go on
    with different coefficients would take different budgets and hang later, in a place that tells nothing.

    Args:
        group: vLLM's TP group.

    Attributes:
        leader: whether this is the first rank, which owns the agent.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self.leader = group.rank_in_group == 0

    def share(self, boundary: Boundary | None) -> Boundary:
        """Returns the first rank's boundary; the others pass None."""
        if self._group.world_size == 1 and boundary is not None:
            return boundary
        packed = self._group.broadcast_object(boundary.pack() if boundary is not None else None, src=0)
        # The first rank too applies what it sent, as the others read it.
        return Boundary.unpack(packed)


def agree(
    store: KeyStore,
    prefix: str,
    rank: int,
    world_size: int,
    plan: dict[str, Any] | None,
    leader_waits_s: float = LEADER_WAITS_S,
    others_wait_s: float = OTHERS_WAIT_S,
) -> dict[str, Any] | None:
    """Whether all ranks of a group take part, and with which settings: the first rank's, or None for none of them.

    A rank that took part while another does not would wait for ever at the first broadcast. So every rank says in the
    store that it is ready; the first one takes each of them at their word, which they can then no longer withdraw, and
    decides. A rank that waits too long withdraws first. Either move is one atomic compare-and-set, so no timing makes
    some go and others stay.

    Args:
        store: shared by all ranks.
        prefix: of this group and this attempt.
        rank, world_size: in the group.
        plan: this rank's settings, as JSON can hold them; None when it cannot take part.
        leader_waits_s: how long the first rank waits for the others, in all.
        others_wait_s: how long the others wait for the first, which may still be loading its model.
    """
    if world_size == 1:
        return plan
    if rank > 0:
        return _follow(store, f"{prefix}/{rank}", f"{prefix}/go", plan, others_wait_s)
    end = time.monotonic() + leader_waits_s
    others = (f"{prefix}/{other}" for other in range(1, world_size))
    going = plan is not None and all(_take(store, other, end - time.monotonic()) for other in others)
    store.set(f"{prefix}/go", json.dumps({"protocol": PROTOCOL, "plan": plan if going else None}))
    return plan if going else None


def _follow(
    store: KeyStore, mine: str, verdict: str, plan: dict[str, Any] | None, wait_s: float
) -> dict[str, Any] | None:
    if plan is None:
        store.set(mine, GONE)
        return None
    ready = f"{READY}{PROTOCOL}"
    store.set(mine, ready)
    if not _appears(store, verdict, wait_s):
        if _text(store.compare_set(mine, ready, GONE)) == GONE:
            return None
        # It has been taken: the first rank is alive, waits for nobody longer than its own limit, and then decides.
        if not _appears(store, verdict, wait_s):
            raise TimeoutError("the first rank took this one along and then did not decide")
    found: dict[str, Any] | None = json.loads(store.get(verdict))["plan"]
    return found


def _take(store: KeyStore, key: str, wait_s: float) -> bool:
    if not _appears(store, key, wait_s):
        return False
    return _text(store.compare_set(key, f"{READY}{PROTOCOL}", TAKEN)) == TAKEN


def _appears(store: KeyStore, key: str, wait_s: float) -> bool:
    """Polls: a store's own waiting would hold up everybody else in this process who uses it."""
    end = time.monotonic() + wait_s
    while not store.check([key]):
        if time.monotonic() >= end:
            return False
        time.sleep(POLL_S)
    return True


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
