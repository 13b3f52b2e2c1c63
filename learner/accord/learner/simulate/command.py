"""`accord simulate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..errors import InvalidValue
from ..evaluate.trace import Trace
from .cost import Cost, Measured, Roofline
from .loop import simulate_trace
from .policies import available, check_policies
from .report import table

_DEFAULT = Roofline()


def simulate(
    trace: Annotated[Path | None, typer.Option(help="A recorded trace (npz); the bundled one by default.")] = None,
    cost_base: Annotated[
        float | None, typer.Option(help=f"Cost of a small step, {_DEFAULT.base:g} by default.")
    ] = None,
    cost_slope: Annotated[
        float | None, typer.Option(help=f"Cost of a token beyond the knee, {_DEFAULT.slope:g} by default.")
    ] = None,
    cost_knee: Annotated[
        float | None, typer.Option(help=f"Tokens that a step takes at no extra cost, {_DEFAULT.knee:g} by default.")
    ] = None,
    cost_table: Annotated[
        Path | None, typer.Option(help="Measured costs instead: lines of tokens,cost (CSV), or JSON.")
    ] = None,
    policies: Annotated[
        str | None, typer.Option(help="Which policies, separated by commas; all that the trace allows by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the outcome to this file (needs the extra 'plot').")] = None,
) -> None:
    """Replays adaptive verification over a trace: tokens per unit cost of vLLM's rule, accord and fixed drafts."""
    cost = _cost(cost_base, cost_slope, cost_knee, cost_table)
    if plot is not None:
        # matplotlib is an extra: a missing one, or a format it does not know, is said before the work starts
        from .plot import check_format, draw

        check_format(plot)
    recorded = Trace.bundled() if trace is None else Trace.load(trace)
    names = available(recorded) if policies is None else check_policies(policies, recorded)
    simulation = simulate_trace(recorded, cost, names)
    if plot is not None:
        draw(simulation, plot)
    if as_json:
        typer.echo(json.dumps(simulation.to_dict(), allow_nan=False))
    else:
        Console().print(table(simulation))


def _cost(base: float | None, slope: float | None, knee: float | None, path: Path | None) -> Cost:
    given = {name: value for name, value in (("base", base), ("slope", slope), ("knee", knee)) if value is not None}
    if path is None:
        return Roofline(**given)
    if given:
        raise InvalidValue("cost-table", str(path), f"cannot go with {', '.join(f'--cost-{name}' for name in given)}")
    return Measured.load(path)
