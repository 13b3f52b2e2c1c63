"""What a simulation showed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..basis import Array
from ..evaluate.trace import Trace

FIELDS = ("tokens_per_cost", "verified_per_step", "accepted_over_verified", "expected_over_realised")

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Outcome:
    """One policy's run, step by step.

    Attributes:
        requests, verified, accepted: int64 [T], live requests, drafts verified and drafts accepted in each step.
        cost: float64 [T], of each step.
        expected: float64 [T], sum of the verified drafts' scores; None for a policy that expects nothing.
    """

    requests: Counts
    verified: Counts
    accepted: Counts
    cost: Array
    expected: Array | None

    @property
    def tokens(self) -> Counts:
        """Tokens emitted in each step, [T]: what was accepted, and one more for each request."""
        emitted: Counts = self.requests + self.accepted
        return emitted

    @property
    def tokens_per_cost(self) -> float:
        """Tokens emitted for each unit of cost, over the whole run: the goodput."""
        return float(self.tokens.sum() / self.cost.sum())

    @property
    def verified_per_step(self) -> float:
        """Drafts verified in a step, on average."""
        return float(self.verified.mean())

    @property
    def accepted_over_verified(self) -> float | None:
        """Share of the verified drafts that was accepted; None when none was verified."""
        verified = int(self.verified.sum())
        return float(self.accepted.sum()) / verified if verified else None

    @property
    def expected_over_realised(self) -> float | None:
        """Tokens that the budget's own arithmetic expected of what was verified, over tokens emitted.

        Both count the token that every request emits without any draft, as the ratio that is maximised does.
        """
        if self.expected is None:
            return None
        return float((self.requests.sum() + self.expected.sum()) / self.tokens.sum())

    @property
    def expected_over_realised_drafts(self) -> float | None:
        """The same for accepted drafts alone, the stricter test of the scores; None when none was accepted."""
        accepted = int(self.accepted.sum())
        return float(self.expected.sum()) / accepted if self.expected is not None and accepted else None

    def to_dict(self) -> dict[str, float | None]:
        """The policy's entry in the JSON document."""
        return {name: getattr(self, name) for name in FIELDS}


@dataclass(frozen=True)
class Simulation:
    """Every policy's run over one trace.

    Attributes:
        trace: what was replayed.
        outcomes: of the policies asked for, by name.
        fixed: of every fixed number of drafts, by name.
    """

    trace: Trace
    outcomes: dict[str, Outcome]
    fixed: dict[str, Outcome]

    @property
    def best_fixed(self) -> str:
        """The fixed policy with the most tokens per cost, chosen with hindsight; the smallest of equals."""
        return max(self.fixed, key=lambda name: self.fixed[name].tokens_per_cost)

    def gain(self, name: str) -> float:
        """By how much a policy's tokens per cost exceed those of the best fixed one, relative to it."""
        return self.outcomes[name].tokens_per_cost / self.fixed[self.best_fixed].tokens_per_cost - 1.0

    @property
    def adaptive(self) -> list[str]:
        """Policies asked for that are not fixed."""
        return [name for name in self.outcomes if name not in self.fixed]

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `accord simulate --json`."""
        return {
            "policies": {name: outcome.to_dict() for name, outcome in self.outcomes.items()},
            "best_fixed": self.best_fixed,
            "gain": {name: self.gain(name) for name in self.adaptive},
        }
