"""Losslessness: what trimming may look at, shown by adding up every outcome of one block of speculative decoding."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from accord.learner.basis import Array, logit, sigmoid
from accord.learner.simulate.budget import admit, choose_budget
from accord.learner.simulate.scores import confidence, hindsight_survival, running_minimum, survival

K = 3
TOKENS = 3
SEEDS = range(8)

Rule = Callable[["Models", tuple[int, ...]], int]
"""How many drafts of a block are verified, given all of its drafted tokens."""


class Models:
    """A random draft and target model over three tokens: a distribution behind every prefix."""

    def __init__(self, seed: int, k: int = K) -> None:
        rng = np.random.default_rng(seed)
        self.k = k
        prefixes = [p for n in range(k + 1) for p in itertools.product(range(TOKENS), repeat=n)]
        self.target = {prefix: rng.dirichlet(np.full(TOKENS, 0.7)) for prefix in prefixes}
        self.draft = {prefix: rng.dirichlet(np.full(TOKENS, 0.7)) for prefix in prefixes}

    def target_law(self, tokens: tuple[int, ...]) -> float:
        """P(tokens) under the target alone."""
        return float(np.prod([self.target[tokens[:j]][x] for j, x in enumerate(tokens)]))

    def q_max(self, drafts: tuple[int, ...]) -> Array:
        """Largest draft probability at each position of a block, [1, K]."""
        return np.array([[self.draft[drafts[:j]].max() for j in range(self.k)]])

    def q_drawn(self, drafts: tuple[int, ...]) -> Array:
        """Draft probability of the token drawn at each position, [1, K]."""
        return np.array([[self.draft[drafts[:j]][x] for j, x in enumerate(drafts)]])


def law(models: Models, rule: Rule) -> dict[tuple[int, ...], float]:
    """P of every K + 1 tokens: one block under a trimming rule, what is left of them drawn from the target."""
    out = dict.fromkeys(itertools.product(range(TOKENS), repeat=models.k + 1), 0.0)
    for drafts in itertools.product(range(TOKENS), repeat=models.k):
        drawn = float(models.q_drawn(drafts).prod())
        for emitted, probability in verify(models, drafts, rule(models, drafts)):
            for tokens in out:
                if tokens[: len(emitted)] == emitted:
                    rest = models.target_law(tokens) / models.target_law(emitted)
                    out[tokens] += drawn * probability * rest
    return out


def verify(models: Models, drafts: tuple[int, ...], admitted: int) -> list[tuple[tuple[int, ...], float]]:
    """What rejection sampling (Leviathan et al. 2023) emits for a block whose first drafts are verified."""
    out, reached = [], 1.0
    for j in range(admitted):
        p, q, x = models.target[drafts[:j]], models.draft[drafts[:j]], drafts[j]
        accept = min(1.0, p[x] / q[x])
        left = np.maximum(p - q, 0.0)
        if accept < 1.0:
            for token, share in enumerate(left / left.sum()):
                out.append(((*drafts[:j], token), reached * (1.0 - accept) * share))
        reached *= accept
    kept = drafts[:admitted]
    return out + [((*kept, token), reached * share) for token, share in enumerate(models.target[kept])]


def distance(models: Models, rule: Rule) -> float:
    """Total variation between a block's output and the target."""
    return 0.5 * sum(abs(p - models.target_law(tokens)) for tokens, p in law(models, rule).items())


def accept_by_q_max(models: Models, drafts: tuple[int, ...]) -> Array:
    """A model of acceptance that knows q_max."""
    return sigmoid(1.5 * logit(models.q_max(drafts)) - 0.2)


def accept_by_draw(models: Models, drafts: tuple[int, ...]) -> Array:
    """A model of acceptance that also knows the token drawn."""
    return sigmoid(2.0 * logit(models.q_drawn(drafts)) + 0.5)


def beside_a_neighbour(scores: Array, budget: int = K) -> int:
    """How many drafts of a block are verified when another request competes for the same budget."""
    neighbour = np.array([[0.6, 0.35, 0.2]])
    return int(admit(np.concatenate([scores, neighbour]), budget)[0])


def plain(models: Models, drafts: tuple[int, ...]) -> int:
    """Trims by survival from q_max."""
    return beside_a_neighbour(survival(accept_by_q_max(models, drafts)))


def hindsight(models: Models, drafts: tuple[int, ...]) -> int:
    """Trims by survival that knows the tokens before each position, as vLLM gets it: through confidences."""
    known = hindsight_survival(accept_by_q_max(models, drafts), accept_by_draw(models, drafts))
    return beside_a_neighbour(survival(confidence(running_minimum(known))))


def own_draw(models: Models, drafts: tuple[int, ...]) -> int:
    """Trims by survival that knows the token drawn at the position itself."""
    return beside_a_neighbour(survival(accept_by_draw(models, drafts)))


def own_budget(models: Models, drafts: tuple[int, ...]) -> int:
    """Trims by survival from q_max, with a budget chosen from this very step's scores."""
    scores = survival(accept_by_q_max(models, drafts))
    return beside_a_neighbour(scores, choose_budget(scores, np.array([1.0, 1.2, 1.5, 1.9])))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rule", [plain, hindsight])
def test_trimming_by_what_came_before_a_draw_keeps_the_targets_law(seed: int, rule: Rule) -> None:
    """Survival from q_max, and survival with hindsight, leave the law of a block's output exactly the target's."""
    models = Models(seed)
    assert sum(law(models, rule).values()) == pytest.approx(1.0, abs=1e-12)
    assert distance(models, rule) < 1e-12


def test_both_rules_really_trim() -> None:
    """Over the random models each rule verifies several numbers of drafts, and hindsight differs from plain."""
    blocks = [(Models(s), d) for s in SEEDS for d in itertools.product(range(TOKENS), repeat=K)]
    for rule in (plain, hindsight, own_draw):
        assert len({rule(*block) for block in blocks}) >= 3
    assert any(plain(*block) != hindsight(*block) for block in blocks)


def test_trimming_by_the_own_draw_changes_the_law() -> None:
    """Scores that know the draw which they admit move a block's output more than 0.05 away from the target."""
    assert np.median([distance(Models(seed), own_draw) for seed in SEEDS]) > 0.05


def test_without_the_running_minimum_hindsight_changes_the_law() -> None:
    """Ranking by survival with hindsight itself, which may rise, lets later scores decide earlier admissions."""

    def rising(models: Models, drafts: tuple[int, ...]) -> int:
        known = hindsight_survival(accept_by_q_max(models, drafts), accept_by_draw(models, drafts))
        return beside_a_neighbour(known)

    assert max(distance(Models(seed), rising) for seed in SEEDS) > 0.01


def test_a_budget_from_the_scores_of_its_own_step_changes_the_law() -> None:
    """A budget that sees q_max behind the tokens drawn in the same step is not lossless, which is why it is older."""
    assert max(distance(Models(seed), own_budget) for seed in SEEDS) > 0.01


@pytest.mark.parametrize(("by_draw", "expected"), [(False, (0.5, 0.5)), (True, (0.4, 0.6))])
def test_the_two_token_example(by_draw: bool, expected: tuple[float, float]) -> None:
    """With p = (0.5, 0.5), q = (0.2, 0.8) and threshold 0.5, q_max keeps p and the drawn token's q gives (0.4, 0.6)."""
    p, q = np.array([0.5, 0.5]), np.array([0.2, 0.8])
    out = np.zeros(2)
    for token in (0, 1):
        if (q[token] if by_draw else q.max()) >= 0.5:
            accept = min(1.0, p[token] / q[token])
            left = np.maximum(p - q, 0.0)
            out[token] += q[token] * accept
            out += q[token] * (1.0 - accept) * left / left.sum()
        else:
            out += q[token] * p
    np.testing.assert_allclose(out, expected, atol=1e-15)
