"""`accord simulate`: the closed loop, what it earns on real and synthetic traces, report, plot and command line."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from accord.learner.basis import Array, sigmoid
from accord.learner.cli import main
from accord.learner.coefficients import Coefficients
from accord.learner.errors import InvalidValue
from accord.learner.evaluate.synthetic import Source, Synthetic, synthetic
from accord.learner.evaluate.trace import Trace
from accord.learner.simulate.cost import Roofline
from accord.learner.simulate.loop import run_adaptive, run_fixed, simulate_trace
from accord.learner.simulate.outcome import FIELDS, Simulation
from accord.learner.simulate.policies import Drafts, available, check_policies
from accord.learner.simulate.report import table
from accord.learner.simulate.scores import survival

STEEP, FLAT = Roofline(12.0, 0.06, 32.0), Roofline(12.0, 0.02, 32.0)


def mixture(*, steps: int, concurrency: int, variance: float = 0.0, k: int = 7, seed: int = 0) -> Synthetic:
    """Five workloads, slopes 0.45 to 0.6, levels -0.3 to 0.6."""
    keys = ("chat:sampled", "chat:warm", "code:greedy", "docs:sampled", "math:sampled")
    lines = zip(keys, np.linspace(0.45, 0.6, 5), np.linspace(-0.3, 0.6, 5), strict=True)
    sources = [Source(key, Coefficients(np.array([s]), np.full(k, b), variance)) for key, s, b in lines]
    return synthetic(sources, k=k, steps=steps, concurrency=concurrency, seed=seed)


class Recorder:
    """A policy with given scores [N, K], which notes what it is taught."""

    def __init__(self, scores: Array) -> None:
        self.given = scores
        self.taught: list[tuple[slice, Any, Any]] = []

    def scores(self, drafts: Drafts) -> Array:
        """The rows of the given scores."""
        return self.given[drafts.rows]

    def learn(self, drafts: Drafts, accepted: Any, admitted: Any) -> None:
        """Notes the verdict."""
        self.taught.append((drafts.rows, accepted, admitted))


@pytest.fixture(scope="module")
def bundled() -> dict[float, Simulation]:
    """Every policy over the bundled trace, by slope of the cost."""
    trace = Trace.bundled()
    return {cost.slope: simulate_trace(trace, cost, available(trace)) for cost in (STEEP, FLAT)}


def test_the_loop_is_the_written_rule() -> None:
    """Step by step, a plain loop over Python numbers finds the same budgets, admissions, verdicts and sums."""
    trace = mixture(steps=60, concurrency=5, k=3).trace
    scores = survival(np.random.default_rng(0).random((trace.rows, 3)))
    policy, costs = Recorder(scores), Roofline(2.0, 0.2, 6.0).table(20)
    outcome = run_adaptive(trace, costs, policy)
    old: dict[int, list[float]] = {}
    for t, rows in enumerate(trace.steps()):
        requests = trace.request[rows].tolist()
        stale = sorted((s for r in requests for s in old.get(r, [1.0] * 3)), reverse=True)
        value = [(len(requests) + sum(stale[:n])) / costs[len(requests) + n] for n in range(len(stale) + 1)]
        budget = value.index(max(value))
        ranked = sorted((-scores[rows][i, j], i, j) for i in range(len(requests)) for j in range(3))[:budget]
        admitted = [sum(i == r for _, i, _ in ranked) for r in range(len(requests))]
        accepted = [min(a, n) for a, n in zip(trace.accepted[rows].tolist(), admitted, strict=True)]
        assert policy.taught[t][0] == rows
        assert policy.taught[t][1].tolist() == accepted
        assert policy.taught[t][2].tolist() == admitted
        assert (outcome.requests[t], outcome.verified[t], outcome.accepted[t]) == (5, budget, sum(accepted))
        assert outcome.cost[t] == costs[5 + budget]
        assert outcome.expected is not None
        assert outcome.expected[t] == pytest.approx(-sum(s for s, _, _ in ranked))
        old.update(zip(requests, scores[rows].tolist(), strict=True))


@pytest.mark.parametrize("drafts", [0, 1, 3])
def test_a_fixed_policy_verifies_the_same_of_every_request(drafts: int) -> None:
    """Its sums are those of the trace cut off at that number of drafts."""
    trace = mixture(steps=20, concurrency=4, k=3).trace
    outcome = run_fixed(trace, STEEP.table(16), drafts)
    assert outcome.verified_per_step == 4 * drafts
    assert outcome.tokens.sum() == trace.rows + np.minimum(trace.accepted, drafts).sum()
    assert outcome.cost.sum() == pytest.approx(20 * (12.0 + 0.06 * max(4 * (1 + drafts) - 32, 0)))


def test_free_verification_verifies_everything() -> None:
    """Where a token costs nothing, the adaptive policies are the largest fixed one, and gain nothing over it."""
    trace = mixture(steps=40, concurrency=4, k=3).trace
    simulation = simulate_trace(trace, Roofline(1.0, 0.0, 0.0), ["fixed-3", "vllm", "accord"])
    assert simulation.best_fixed == "fixed-3"
    for outcome in simulation.outcomes.values():
        assert outcome.verified_per_step == 12.0
        assert outcome.tokens_per_cost == pytest.approx(float(trace.rows + trace.accepted.sum()) / 40)
    assert simulation.gain("accord") == 0.0


def test_expected_over_realised_is_of_tokens_and_of_drafts() -> None:
    """Scores equal to the truth expect what happens, within the noise of the trace; halved scores expect less."""
    made = mixture(steps=400, concurrency=16, k=3)
    costs = STEEP.table(64)
    right = run_adaptive(made.trace, costs, Recorder(survival(sigmoid(made.log_odds))))
    assert right.expected_over_realised == pytest.approx(1.0, abs=0.01)
    assert right.expected_over_realised_drafts == pytest.approx(1.0, abs=0.02)
    low = run_adaptive(made.trace, costs, Recorder(0.5 * survival(sigmoid(made.log_odds))))
    assert low.expected_over_realised_drafts == pytest.approx(0.5, abs=0.02)
    assert low.expected_over_realised == pytest.approx(
        (low.requests.sum() + 0.5 * low.accepted.sum()) / low.tokens.sum(), abs=0.02
    )


@pytest.mark.parametrize(("slope", "over_vllm"), [(0.06, 0.018), (0.02, 0.015)])
def test_on_real_drafts_accord_doubles_what_adaptive_verification_gains(
    bundled: dict[float, Simulation], slope: float, over_vllm: float
) -> None:
    """On the bundled trace accord beats vLLM's rule by the promised share, doubles the gain, and expects honestly."""
    simulation = bundled[slope]
    vllm, accord = simulation.outcomes["vllm"], simulation.outcomes["accord"]
    assert accord.tokens_per_cost >= (1.0 + over_vllm) * vllm.tokens_per_cost
    assert simulation.gain("accord") >= 2.0 * simulation.gain("vllm") > 0.0
    assert accord.expected_over_realised == pytest.approx(1.0, abs=0.025)


@pytest.mark.parametrize("cost", [STEEP, FLAT])
def test_without_request_effects_accord_closes_the_gap_to_the_truth(cost: Roofline) -> None:
    """With known truth, accord closes at least 90% of the goodput gap between vLLM's rule and the truth."""
    made = mixture(steps=900, concurrency=64)
    out = simulate_trace(made.trace, cost, ["vllm", "accord", "truth"], truth=sigmoid(made.log_odds)).outcomes
    vllm, accord, truth = (out[name].tokens_per_cost for name in ("vllm", "accord", "truth"))
    assert truth > vllm
    assert accord - vllm >= 0.9 * (truth - vllm)


@pytest.mark.parametrize("cost", [STEEP, FLAT])
def test_with_request_effects_accord_leaves_vllm_behind(cost: Roofline) -> None:
    """With request effects of standard deviation 0.5, accord is at least 1.5% above vLLM's rule and below the truth."""
    made = mixture(steps=900, concurrency=64, variance=0.25)
    out = simulate_trace(made.trace, cost, ["vllm", "accord", "truth"], truth=sigmoid(made.log_odds)).outcomes
    assert out["accord"].tokens_per_cost >= 1.015 * out["vllm"].tokens_per_cost
    assert out["truth"].tokens_per_cost > out["accord"].tokens_per_cost


def test_the_same_trace_gives_the_same_bytes() -> None:
    """Two runs give equal JSON."""
    trace = mixture(steps=150, concurrency=8).trace
    first, second = (json.dumps(simulate_trace(trace, STEEP, available(trace)).to_dict()) for _ in range(2))
    assert first == second


def test_batches_may_change_size() -> None:
    """A trace whose steps hold different numbers of requests is simulated, down to one request."""
    trace = mixture(steps=40, concurrency=6).trace
    kept = trace.take((np.arange(trace.rows) % 7 > 2) | (np.arange(trace.rows) % 6 == 0))
    simulation = simulate_trace(kept, STEEP, available(kept))
    assert simulation.outcomes["vllm"].requests.sum() == kept.rows
    assert len(set(simulation.outcomes["vllm"].requests.tolist())) > 1


@pytest.mark.parametrize("name", ["fixed-8", "fixed", "", "vllm "])
def test_an_unknown_policy_is_named(name: str) -> None:
    """A policy that does not exist is InvalidValue that lists those that do."""
    trace = mixture(steps=3, concurrency=2).trace
    with pytest.raises(InvalidValue, match="fixed-0, fixed-1"):
        simulate_trace(trace, STEEP, [name])


def test_policies_are_read_from_text() -> None:
    """Names are separated by commas, spaces are ignored, and a name counts once."""
    trace = mixture(steps=3, concurrency=2).trace
    assert check_policies(" vllm,accord, vllm,", trace) == ["vllm", "accord"]
    for text in ("", "vllm,fixed-9"):
        with pytest.raises(InvalidValue, match="policies"):
            check_policies(text, trace)


def test_the_truth_must_be_given_and_fit() -> None:
    """The policy of the truth needs probabilities of the trace's shape."""
    made = mixture(steps=3, concurrency=2)
    with pytest.raises(InvalidValue, match="not known"):
        simulate_trace(made.trace, STEEP, ["truth"])
    with pytest.raises(InvalidValue, match=r"must have shape \[N, K\]"):
        simulate_trace(made.trace, STEEP, ["truth"], truth=[[0.5]])
    assert available(made.trace, truth=True)[-1] == "truth"


def test_an_empty_trace_is_refused() -> None:
    """A trace without rows is InvalidValue."""
    trace = mixture(steps=3, concurrency=2).trace
    with pytest.raises(InvalidValue, match="no rows"):
        simulate_trace(trace.take(np.zeros(trace.rows, dtype=bool)), STEEP, ["vllm"])


def test_the_table_names_the_gains() -> None:
    """It marks the best fixed policy and says what each adaptive one gains over it and over vLLM, in 80 columns."""
    simulation = simulate_trace(trace := mixture(steps=30, concurrency=8).trace, STEEP, available(trace))
    shown = io.StringIO()
    Console(width=80, file=shown).print(table(simulation))
    text = shown.getvalue()
    assert f"{simulation.best_fixed} *" in text
    assert f"accord gains {simulation.gain('accord'):+.2%} over it" in text
    assert "against vllm" in text
    assert "…" not in text


def outcome(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[object, str, str]:
    """Exit code, stdout and stderr of `accord simulate`."""
    with pytest.raises(SystemExit) as caught:
        main(["simulate", *arguments])
    shown = capsys.readouterr()
    return caught.value.code or 0, shown.out, shown.err


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A short trace file."""
    path = tmp_path / "small.npz"
    mixture(steps=30, concurrency=4, k=2).trace.save(path)
    return path


def test_json_has_the_published_shape(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every policy has the four published numbers; what a fixed policy cannot say is null."""
    code, out, err = outcome(["--trace", str(small), "--json"], capsys)
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert list(document["policies"]) == ["fixed-0", "fixed-1", "fixed-2", "vllm", "accord"]
    for name, row in document["policies"].items():
        assert tuple(row) == FIELDS
        assert row["tokens_per_cost"] > 0.0
        assert (row["expected_over_realised"] is None) == name.startswith("fixed")
    assert document["policies"]["fixed-0"]["accepted_over_verified"] is None
    assert document["best_fixed"] in document["policies"]
    assert set(document["gain"]) == {"vllm", "accord"}


def test_costs_are_options_or_a_file(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table that tells the same costs as the options gives the same document, and both at once are refused."""
    costs = tmp_path / "costs.json"
    costs.write_text(json.dumps([[0, 5.0], [6, 5.0], [12, 6.2]]))
    base = ["--trace", str(small), "--json"]
    options = outcome([*base, "--cost-base", "5", "--cost-slope", "0.2", "--cost-knee", "6"], capsys)
    file = outcome([*base, "--cost-table", str(costs)], capsys)
    for a, b in zip(*(json.loads(text)["policies"].values() for _, text, _ in (options, file)), strict=True):
        assert a == pytest.approx(b)
    code, _, err = outcome([*base, "--cost-table", str(costs), "--cost-knee", "6"], capsys)
    assert code == 2
    assert "cannot go with --cost-knee" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cost-base", "0"], "cost-base = 0.0"),
        (["--cost-slope", "nan"], "cost-slope = nan"),
        (["--policies", "truth"], "not known"),
        (["--policies", "accord-hindsight"], "needs a trace with q_sampled"),
        (["--plot", "figure.txt"], "plot = 'figure.txt': must end in one of"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    small: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bad option ends with code 2, nothing on stdout, and one line on stderr."""
    code, out, err = outcome(["--trace", str(small), *arguments], capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_plot_is_written(small: Path, tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--plot` writes a figure in the format of its name and still prints the table."""
    target = tmp_path / f"figure.{ending}"
    code, out, _ = outcome(["--trace", str(small), "--plot", str(target)], capsys)
    assert code == 0
    assert "accord gains" in out
    assert target.stat().st_size > 1000


def test_a_plot_that_cannot_be_written_is_said(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that does not exist is named in one line."""
    code, _, err = outcome(["--trace", str(small), "--plot", str(tmp_path / "gone" / "figure.png")], capsys)
    assert code == 2
    assert "No such file" in err


def test_only_a_plot_needs_matplotlib(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without matplotlib everything else works, and `--plot` says at once which extra to install."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "accord.learner.simulate.plot", raising=False)
    assert outcome(["--trace", str(small), "--json"], capsys)[0] == 0
    code, out, err = outcome(["--trace", str(small), "--plot", str(tmp_path / "figure.png")], capsys)
    assert (code, out) == (2, "")
    assert "pip install 'accord[plot]'" in err
