"""The plot of `accord simulate`: the only module that needs matplotlib (the extra `plot`)."""

from __future__ import annotations

import os

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..basis import Array
from ..errors import InvalidValue
from ..request_effect import Index
from .outcome import Outcome, Simulation

WINDOWS = 20
"""Into how many parts the run is cut to show goodput over time."""


def check_format(path: str | os.PathLike[str]) -> None:
    """Raises InvalidValue for a file name whose ending names no format that can be drawn."""
    ending = os.path.splitext(os.fspath(path))[1].removeprefix(".").lower()
    known = sorted(Figure().canvas.get_supported_filetypes())
    if ending not in known:
        raise InvalidValue("plot", os.fspath(path), f"must end in one of {', '.join(known)}")


def draw(simulation: Simulation, path: str | os.PathLike[str]) -> None:
    """Writes two panels: goodput against drafts verified, and goodput over time relative to the best fixed number.

    Args:
        path: where to; the format follows from its ending.

    Raises:
        InvalidValue: for a path that cannot be written, or an unknown ending.
    """
    check_format(path)
    figure = Figure(figsize=(10.0, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    _against_verified(left, simulation)
    _over_time(right, simulation)
    try:
        figure.savefig(path)
    except OSError as error:
        raise InvalidValue("plot", os.fspath(path), error.strerror or "cannot be written") from None


def _against_verified(axes: Axes, simulation: Simulation) -> None:
    fixed = list(simulation.fixed.values())
    x, y = [outcome.verified_per_step for outcome in fixed], [outcome.tokens_per_cost for outcome in fixed]
    axes.plot(x, y, marker="o", color="0.6", label="fixed")
    for name in simulation.adaptive:
        outcome = simulation.outcomes[name]
        axes.plot([outcome.verified_per_step], [outcome.tokens_per_cost], marker="D", linestyle="", label=name)
    axes.set_xlabel("drafts verified per step")
    axes.set_ylabel("tokens per unit cost")
    axes.legend()


def _over_time(axes: Axes, simulation: Simulation) -> None:
    best = simulation.fixed[simulation.best_fixed]
    edges = np.linspace(0, len(best.cost), min(WINDOWS, len(best.cost)) + 1).astype(np.intp)[:-1]
    for name in simulation.adaptive:
        gain = 100.0 * (_goodput(simulation.outcomes[name], edges) / _goodput(best, edges) - 1.0)
        axes.plot(edges, gain, label=name)
    axes.axhline(0.0, color="0.6", linewidth=1.0)
    axes.set_xlabel("decode step")
    axes.set_ylabel(f"gain over {simulation.best_fixed}, %")
    if simulation.adaptive:
        axes.legend()


def _goodput(outcome: Outcome, edges: Index) -> Array:
    ratio: Array = np.add.reduceat(outcome.tokens, edges) / np.add.reduceat(outcome.cost, edges)
    return ratio
