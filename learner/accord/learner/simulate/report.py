"""The table of `accord simulate`."""

from __future__ import annotations

from rich import box
from rich.table import Table

from .outcome import Outcome, Simulation

_COLUMNS = ("tokens\n/cost", "gain", "verified\n/step", "accepted\n/verified", "expected\n/realised", "drafts\nonly")


def table(simulation: Simulation) -> Table:
    """One row for each policy, and what adaptive verification gains over the best fixed number; 80 columns hold it."""
    trace = simulation.trace
    grid = Table(
        title=f"{trace.pair.target} + {trace.pair.draft} ({trace.pair.method}, K = {trace.k})",
        caption=_gains(simulation),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        padding=(0, 1, 0, 0),
    )
    grid.add_column("policy", no_wrap=True)
    for name in _COLUMNS:
        grid.add_column(name, justify="right", no_wrap=True)
    best = simulation.fixed[simulation.best_fixed]
    for name, outcome in simulation.outcomes.items():
        mark = " *" if name == simulation.best_fixed else ""
        grid.add_row(name + mark, *_cells(outcome, best))
    return grid


def _cells(outcome: Outcome, best: Outcome) -> tuple[str, ...]:
    return (
        f"{outcome.tokens_per_cost:.4f}",
        f"{outcome.tokens_per_cost / best.tokens_per_cost - 1.0:+.2%}",
        f"{outcome.verified_per_step:.1f}",
        _number(outcome.accepted_over_verified),
        _number(outcome.expected_over_realised),
        _number(outcome.expected_over_realised_drafts),
    )


def _gains(simulation: Simulation) -> str:
    lines = [f"gain: over {simulation.best_fixed}, the best fixed number of drafts (*)"]
    lines += [f"{name} gains {simulation.gain(name):+.2%} over it" for name in simulation.adaptive]
    outcomes = simulation.outcomes
    if "vllm" in outcomes:
        lines += [
            f"{name} is {outcomes[name].tokens_per_cost / outcomes['vllm'].tokens_per_cost - 1.0:+.2%} against vllm"
            for name in simulation.adaptive
            if name != "vllm"
        ]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
