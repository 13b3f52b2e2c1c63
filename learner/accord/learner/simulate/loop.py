"""The closed loop: what a policy chooses to verify decides what it earns, what it pays, and what it learns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ..basis import Array
from ..errors import InvalidValue
from ..evaluate.trace import Trace
from .budget import FRESH_SCORE, admit, choose_budget
from .cost import Cost
from .outcome import Outcome, Simulation
from .policies import ADAPTIVE, Drafts, Policy, fixed_name


def simulate_trace(
    trace: Trace, cost: Cost, policies: Sequence[str], *, truth: npt.ArrayLike | None = None
) -> Simulation:
    """Runs fresh policies over a trace, each in a loop of its own; the same arguments give the same numbers.

    Args:
        trace: at least one row.
        cost: of a step, by tokens.
        policies: names out of `fixed-0`..`fixed-K` and `ADAPTIVE`; the best fixed number is always found.
        truth: [N, K] true probabilities, for the policy of that name.

    Raises:
        InvalidValue: for an unknown policy, one that the trace does not allow, or an empty trace.
    """
    if not trace.rows:
        raise InvalidValue("features", trace.features.shape, "the trace has no rows")
    sizes = np.diff([rows.start for rows in trace.steps()], append=trace.rows)
    costs = cost.table(int(sizes.max()) * (1 + trace.k))
    fixed = {fixed_name(n): run_fixed(trace, costs, n) for n in range(trace.k + 1)}
    outcomes = {}
    for name in policies:
        if name in fixed:
            outcomes[name] = fixed[name]
        elif name in ADAPTIVE:
            outcomes[name] = run_adaptive(trace, costs, ADAPTIVE[name](trace, truth))
        else:
            raise InvalidValue("policies", name, f"must be among {', '.join([*fixed, *ADAPTIVE])}")
    return Simulation(trace, outcomes, fixed)


def run_fixed(trace: Trace, costs: Array, drafts: int) -> Outcome:
    """Verifies the first drafts of every request, as many each step.

    Args:
        costs: float64, cost of a step by its tokens, long enough for the largest step.
    """
    starts = [rows.start for rows in trace.steps()]
    requests = np.diff(starts, append=trace.rows)
    accepted = np.add.reduceat(np.minimum(trace.accepted, drafts), starts)
    return Outcome(requests, requests * drafts, accepted, costs[requests * (1 + drafts)], None)


def run_adaptive(trace: Trace, costs: Array, policy: Policy) -> Outcome:
    """Lets a policy's scores choose the budget of the next step and the drafts of this one.

    Args:
        costs: as in `run_fixed`; policy: fresh; it learns from this run.
    """
    previous = np.full((int(np.unique(trace.request).size), trace.k), FRESH_SCORE)
    steps = []
    for drafts in _steps(trace):
        scores = policy.scores(drafts)
        requests = len(scores)
        budget = choose_budget(previous[drafts.requests], costs[requests : requests * (1 + trace.k) + 1])
        admitted = admit(scores, budget)
        accepted = np.minimum(trace.accepted[drafts.rows], admitted)
        expected = float(scores[np.arange(trace.k) < admitted[:, None]].sum())
        steps.append((requests, budget, int(accepted.sum()), float(costs[requests + budget]), expected))
        previous[drafts.requests] = scores
        policy.learn(drafts, accepted, admitted)
    requests_, verified, accepted_, cost, expected_ = zip(*steps, strict=True)
    return Outcome(
        np.array(requests_), np.array(verified), np.array(accepted_), np.array(cost), np.array(expected_, dtype=float)
    )


def _steps(trace: Trace) -> Iterator[Drafts]:
    _, request = np.unique(trace.request, return_inverse=True)
    for rows in trace.steps():
        q = None if trace.q_sampled is None else trace.q_sampled[rows]
        yield Drafts(rows, trace.features[rows], trace.workload[rows], request[rows], q)
