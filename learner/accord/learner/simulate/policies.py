"""Policies: who says which drafts are worth verifying."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..basis import Array
from ..errors import InvalidValue
from ..evaluate.predictors import FIRST_ROUNDS, ROUND_STEPS, Accord, Predictor, Vllm
from ..evaluate.trace import Floats, Ints, Trace
from ..request_effect import Index
from .draw_model import DrawModel
from .scores import hindsight_survival, running_minimum, survival

TRUTH = "truth"
HINDSIGHT = "accord-hindsight"


@dataclass(frozen=True)
class Drafts:
    """The drafts of one decode step.

    Attributes:
        rows: of the trace.
        features: [B, K] logit(q_max); slots: [B] workload slots; requests: [B] request slots.
        q_sampled: [B, K] draft probability of the token drawn, where the trace has it.
    """

    rows: slice
    features: Floats
    slots: Index
    requests: Index
    q_sampled: Floats | None


class Policy(Protocol):
    """Scores drafts, and learns from those that were verified."""

    def scores(self, drafts: Drafts) -> Array:
        """Expected acceptance of each draft [B, K], never rising along a request."""
        ...

    def learn(self, drafts: Drafts, accepted: Ints, admitted: Ints) -> None:
        """Takes in the verdict: accepted and verified drafts, [B] each, 0 <= accepted <= admitted <= K."""
        ...


class Survival:
    """Survival by a predictor of acceptance."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor

    def scores(self, drafts: Drafts) -> Array:
        """See `Policy`."""
        return survival(self._predictor.predict(drafts.features, drafts.slots, drafts.requests))

    def learn(self, drafts: Drafts, accepted: Ints, admitted: Ints) -> None:
        """See `Policy`."""
        self._predictor.learn(drafts.features, drafts.slots, drafts.requests, accepted, admitted)


class Hindsight:
    """Survival by `Accord`, sharpened by the tokens drawn before each position (`hindsight_survival`).

    Raises:
        InvalidValue: when the trace has no q_sampled.
    """

    def __init__(self, trace: Trace) -> None:
        if trace.q_sampled is None:
            raise InvalidValue("policies", HINDSIGHT, "needs a trace with q_sampled")
        self._predictor = Accord(trace)
        self._draw = DrawModel(trace.pair, trace.workloads)
        self._probability = np.empty((0, trace.k))
        self._rounds = self._steps = 0

    def scores(self, drafts: Drafts) -> Array:
        """See `Policy`."""
        self._probability = self._predictor.predict(drafts.features, drafts.slots, drafts.requests)
        given = self._draw.predict(self._probability, drafts.features, _drawn(drafts), drafts.slots)
        return running_minimum(hindsight_survival(self._probability, given))

    def learn(self, drafts: Drafts, accepted: Ints, admitted: Ints) -> None:
        """See `Policy`; the drafts are those that were scored last."""
        step = drafts.features, _drawn(drafts), drafts.slots
        self._draw.observe(self._probability, *step, accepted, admitted)
        self._predictor.learn(drafts.features, drafts.slots, drafts.requests, accepted, admitted)
        self._steps += 1
        if self._steps == (*FIRST_ROUNDS, ROUND_STEPS)[min(self._rounds, len(FIRST_ROUNDS))]:
            self._draw.refit()
            self._rounds, self._steps = self._rounds + 1, 0


class Truth:
    """Survival by the true probabilities [N, K] of a trace's rows: what no estimate can beat on average.

    Raises:
        InvalidValue: when the trace has other rows, or its truth is not known.
    """

    def __init__(self, trace: Trace, probability: npt.ArrayLike | None) -> None:
        if probability is None:
            raise InvalidValue("policies", TRUTH, "the true probabilities of a recorded trace are not known")
        self._survival = survival(np.asarray(probability, dtype=np.float64))
        if self._survival.shape != trace.features.shape:
            raise InvalidValue("truth", self._survival.shape, f"must have shape [N, K], {trace.features.shape}")

    def scores(self, drafts: Drafts) -> Array:
        """See `Policy`."""
        return self._survival[drafts.rows]

    def learn(self, drafts: Drafts, accepted: Ints, admitted: Ints) -> None:
        """Nothing: it knows."""


Build = Callable[[Trace, npt.ArrayLike | None], Policy]

ADAPTIVE: Mapping[str, Build] = {
    "vllm": lambda trace, truth: Survival(Vllm(trace)),
    "accord": lambda trace, truth: Survival(Accord(trace)),
    HINDSIGHT: lambda trace, truth: Hindsight(trace),
    TRUTH: lambda trace, truth: Truth(trace, truth),
}
"""Every policy that adapts, by name, in the order they are shown."""


def fixed_name(drafts: int) -> str:
    """The policy that verifies the same number of drafts of every request."""
    return f"fixed-{drafts}"


def available(trace: Trace, *, truth: bool = False) -> list[str]:
    """The names of all policies that a trace allows, in the order they are shown."""
    missing = {HINDSIGHT} if trace.q_sampled is None else set()
    if not truth:
        missing.add(TRUTH)
    return [fixed_name(n) for n in range(trace.k + 1)] + [name for name in ADAPTIVE if name not in missing]


def check_policies(text: str, trace: Trace) -> list[str]:
    """Policy names from text separated by commas, each once; raises InvalidValue for an unknown one."""
    known = [fixed_name(n) for n in range(trace.k + 1)] + list(ADAPTIVE)
    names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names or [text]:
        if name not in known:
            raise InvalidValue("policies", name, f"must be among {', '.join(known)}")
    return names


def _drawn(drafts: Drafts) -> Floats:
    if drafts.q_sampled is None:
        raise InvalidValue("q_sampled", None, "is missing")
    return drafts.q_sampled
