"""Regret to a known truth: mixtures of five workloads, with and without request effects, changes of mix and truth.

`python -m tests.bench truth` prints the tables of docs/quality.md; tests/learner/test_synthetic_truth.py promises.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accord.learner.basis import DEFAULT_KNOTS, Array, sigmoid, softplus
from accord.learner.coefficients import Coefficients
from accord.learner.evaluate.predictors import PREDICTORS
from accord.learner.evaluate.prequential import replay
from accord.learner.evaluate.synthetic import Source, Synthetic, synthetic
from accord.learner.request_effect import RequestEffects

KEYS = ("chat:sampled", "chat:warm", "code:greedy", "docs:sampled", "math:sampled")
K = 7


def mixture(
    *,
    concurrency: int,
    steps: int,
    variance: float = 0.0,
    shares: Sequence[float] = (1, 1, 1, 1, 1),
    jump: float = 0.0,
    seed: int = 0,
) -> Synthetic:
    """Slopes 0.45 to 0.6, levels -0.3 to 0.6, all intercepts moved by `jump`."""
    lines = zip(KEYS, np.linspace(0.45, 0.6, 5), np.linspace(-0.3, 0.6, 5) + jump, shares, strict=True)
    sources = [
        Source(key, Coefficients(np.array([slope]), np.full(K, level), variance), share)
        for key, slope, level, share in lines
    ]
    return synthetic(sources, k=K, steps=steps, concurrency=concurrency, seed=seed)


def regret(made: Synthetic, p: Array) -> Array:
    """Expected log-loss above the truth's, summed over the labels of each row, nats [N]: no noise of the labels."""
    q, true = np.clip(p, 1e-12, 1.0 - 1e-12), sigmoid(made.log_odds)
    each = true * np.log(true / q) + (1.0 - true) * np.log((1.0 - true) / (1.0 - q))
    total: Array = np.where(made.trace.labelled, each, 0.0).sum(axis=1)
    return total


def regrets(made: Synthetic, *names: str) -> dict[str, Array]:
    """The regret of each row under fresh predictors."""
    trace = made.trace
    found = replay(trace, {name: PREDICTORS[name](trace, DEFAULT_KNOTS) for name in names})
    return {name: regret(made, p) for name, p in found.items()}


def known_coefficients(made: Synthetic, variance: float) -> Array:
    """What accord's own request effect predicts with the true coefficients and variance: probabilities [N, K].

    Its distance to the Bayes filter is the price of one step in place of the posterior, and of forgetting: DISCOUNT
    suits requests whose difficulty changes as they go on, and here it never does.
    """
    trace = made.trace
    known = np.linspace(0.45, 0.6, 5)[trace.workload, None] * trace.features.astype(np.float64)
    known += np.linspace(-0.3, 0.6, 5)[trace.workload, None]
    p0, labelled, p = sigmoid(known), trace.labelled, np.empty(known.shape)
    r, v = np.where(labelled, trace.y - p0, 0.0).sum(axis=1), np.where(labelled, p0 * (1.0 - p0), 0.0).sum(axis=1)
    effects, count = RequestEffects(int(trace.request.max()) + 1), labelled.sum(axis=1)
    for rows in trace.steps():
        request = trace.request[rows]
        p[rows] = sigmoid(known[rows] + effects.shift(request, variance)[:, None])
        effects.update(request, count[rows], r[rows], v[rows])
    return p


def bayes_filter(made: Synthetic, variance: float, points: int = 41) -> Array:
    """What nobody can beat who does not know a request's effect before its first label: probabilities [N, K].

    The true coefficients of every workload, and the exact posterior of each request's effect given its earlier labels,
    on a grid over +- 4 standard deviations.
    """
    trace, sd = made.trace, np.sqrt(variance)
    u = np.linspace(-4.0, 4.0, points) * sd
    known = np.linspace(0.45, 0.6, 5)[trace.workload, None] * trace.features.astype(np.float64)
    known += np.linspace(-0.3, 0.6, 5)[trace.workload, None]
    log_weight = np.tile(-0.5 * (u / sd) ** 2, (int(trace.request.max()) + 1, 1))
    sign, labelled, p = np.where(trace.y, -1.0, 1.0), trace.labelled, np.empty(known.shape)
    for rows in trace.steps():
        request, z = trace.request[rows], known[rows][:, :, None] + u
        weight = np.exp(log_weight[request] - log_weight[request].max(axis=1, keepdims=True))
        p[rows] = np.einsum("bkg,bg->bk", sigmoid(z), weight / weight.sum(axis=1, keepdims=True))
        loss = np.where(labelled[rows][:, :, None], softplus(sign[rows][:, :, None] * z), 0.0)
        log_weight[request] -= loss.sum(axis=1)
    return p


def blocks(made: Synthetic, values: Array, start: int, size: int) -> Array:
    """Mean per label over blocks of `size` decode steps from step `start` on."""
    step, labels = made.trace.step, made.trace.labelled.sum(axis=1)
    index = (step[step >= start] - start) // size
    total = np.bincount(index, weights=values[step >= start])
    mean: Array = total / np.bincount(index, weights=labels[step >= start])
    return mean


SEEDS = range(4)
SHOWN = ("accord", "accord-no-request", "accord-line", "vllm")


def main() -> None:
    """Prints regrets to the truth, 1e-4 nats per label, and how vLLM's and accord's recover from a jump."""
    floors = "Bayes filter | known coefficients"
    print(f"| request effects, sd | concurrency | labels | {floors} | " + " | ".join(SHOWN) + " | vllm / accord |")
    print("|" + "---|" * (6 + len(SHOWN)))
    for variance in (0.0, 0.25):
        for concurrency, steps in ((64, 900), (4, 900), (4, 3000)):
            total, labels = dict.fromkeys(("floor", "known", *SHOWN), 0.0), 0
            for seed in SEEDS:
                made = mixture(concurrency=concurrency, steps=steps, variance=variance, seed=seed)
                labels += made.trace.labels
                if variance:
                    total["floor"] += float(regret(made, bayes_filter(made, variance)).sum())
                    total["known"] += float(regret(made, known_coefficients(made, variance)).sum())
                for name, r in regrets(made, *SHOWN).items():
                    total[name] += float(r.sum())
            cells = " | ".join(f"{1e4 * value / labels:.1f}" for value in total.values())
            above = {name: value - total["floor"] for name, value in total.items()}
            ratio = f"{total['vllm'] / total['accord']:.1f}"
            if variance:
                ratio += f" ({above['vllm'] / above['accord']:.1f} above the filter)"
            print(f"| {variance**0.5:g} | {concurrency} | {labels // len(SEEDS):,} | {cells} | {ratio} |", flush=True)
    print()
    print("Intercepts jump by 0.5: regret per label over blocks of 50 steps, 1e-4 nats")
    for concurrency, steps, jump in ((64, 600, 0.5), (64, 600, -0.5), (4, 3000, 0.5), (4, 3000, -0.5)):
        before = mixture(concurrency=concurrency, steps=steps, seed=1)
        made = before.then(mixture(concurrency=concurrency, steps=400, jump=jump, seed=2))
        per_block = made.trace.labelled[made.trace.step >= steps].sum() / 8
        print(f"concurrency {concurrency}, jump {jump:+.1f}, {per_block:,.0f} labels a block")
        for name, r in regrets(made, "accord", "vllm").items():
            print(f"  {name:7s}" + "".join(f"{1e4 * mean:7.1f}" for mean in blocks(made, r, steps - 100, 50)))


if __name__ == "__main__":
    main()
