"""Every key that accord writes to Redis: this module alone builds them.

All keys of a pair carry the pair id as cluster hash tag, so one script may touch any of them on a Redis Cluster.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..pair import check_pair_id

PREFIX = "accord:"

PAIRS = "accord:pairs"
"""Hash: pair id -> JSON of the registered pair."""

LEARNERS = "accord:learners"
"""Sorted set: learner id -> unix ms at which its announcement lapses."""

CHANGES = "accord:changes"
"""Pub/sub channel: `<pair id> <version>` for every publication. A hint only: a message may be lost."""

PERMANENT = {
    "pairs": "the register of pairs; one field for each pair, removed by an operator only",
    "learners": "lapsed members are pruned by every announcement",
    "rounds": "capped by every append, trimmed up to the watermark by every commit",
    "state": "what was learnt; it outlives every process",
    "coefficients": "the version in force; engines may ask for it after any silence",
    "history": "a stream of capped length",
    "overrides": "an operator's wish holds until the operator withdraws it",
    "audit": "a stream of capped length",
    "engines": "one field for each engine; the learner forgets those that were silent for a day, and any beyond 16,384",
    "lease": "the fence may only grow, also across expiry: a key that vanished would start it again",
}
"""Keys without a TTL, by their last part, each with the reason why it may stay."""

_OF_A_PAIR = re.compile(r"accord:\{[^{}]+\}:(?P<part>[a-z]+)")


@dataclass(frozen=True)
class PairKeys:
    """The keys of one pair.

    Raises:
        InvalidValue: for a pair id that is not safe in a key.

    >>> PairKeys("a.b").rounds
    'accord:{a.b}:rounds'
    """

    pair_id: str

    def __post_init__(self) -> None:
        check_pair_id(self.pair_id)

    @property
    def rounds(self) -> str:
        """Stream of summaries, field `d`."""
        return self._key("rounds")

    @property
    def state(self) -> str:
        """Hash: what was learnt, up to which entry."""
        return self._key("state")

    @property
    def coefficients(self) -> str:
        """Hash: the published table in force."""
        return self._key("coefficients")

    @property
    def history(self) -> str:
        """Stream of publications."""
        return self._key("history")

    @property
    def overrides(self) -> str:
        """What operators pinned."""
        return self._key("overrides")

    @property
    def audit(self) -> str:
        """Stream of what operators did."""
        return self._key("audit")

    @property
    def engines(self) -> str:
        """Hash: engine -> its last status."""
        return self._key("engines")

    @property
    def lease(self) -> str:
        """Hash: who may commit, under which fence, until when."""
        return self._key("lease")

    def all(self) -> tuple[str, ...]:
        """Every key of the pair: what an operator deletes to forget it."""
        return (
            self.rounds,
            self.state,
            self.coefficients,
            self.history,
            self.overrides,
            self.audit,
            self.engines,
            self.lease,
        )

    def _key(self, part: str) -> str:
        return f"accord:{{{self.pair_id}}}:{part}"


def permanent_reason(key: str) -> str | None:
    """Why a key may live without a TTL, or None when nobody declared a reason.

    >>> permanent_reason("accord:{a.b}:audit")
    'a stream of capped length'
    >>> permanent_reason("accord:scratch") is None
    True
    """
    if key in (PAIRS, LEARNERS):
        return PERMANENT[key.removeprefix(PREFIX)]
    match = _OF_A_PAIR.fullmatch(key)
    part = match["part"] if match else ""
    return PERMANENT.get(part) if part not in ("pairs", "learners") else None
