"""`accord evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..basis import DEFAULT_KNOTS, check_knots
from ..errors import InvalidValue
from .entropy import ENTROPY, Entropy
from .predictors import PREDICTORS, Predictor
from .prequential import evaluate_trace
from .report import GROUPINGS, tables
from .trace import Trace

_ALL = ",".join(PREDICTORS)
_FEATURES = ("qmax", "entropy")
_KNOTS = ",".join(f"{t:g}" for t in DEFAULT_KNOTS)


def evaluate(
    trace: Annotated[Path | None, typer.Option(help="A recorded trace (npz); the bundled one by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    predictors: Annotated[str, typer.Option(help="Which predictors, separated by commas.")] = _ALL,
    knots: Annotated[str, typer.Option(help="Knots of the spline, separated by commas; empty for a line.")] = _KNOTS,
    features: Annotated[
        str, typer.Option(help="qmax, or qmax,entropy: adds accord with the entropy as second feature.")
    ] = _FEATURES[0],
    by: Annotated[str, typer.Option(help="Rows of the table: workload, or class (of temperature).")] = GROUPINGS[0],
    positions: Annotated[bool, typer.Option("--positions", help="Add a table per draft position.")] = False,
) -> None:
    """Replays a recorded trace offline and compares predictors on labels they have not seen."""
    names, chosen, used = _names(predictors), check_knots(knots), _features(features)
    if by not in GROUPINGS:
        raise InvalidValue("by", by, f"must be among {', '.join(GROUPINGS)}")
    recorded = Trace.bundled() if trace is None else Trace.load(trace)
    judged: dict[str, Predictor] = {name: PREDICTORS[name](recorded, chosen) for name in names}
    if "entropy" in used:
        judged[ENTROPY] = Entropy(recorded, chosen)
    evaluation = evaluate_trace(recorded, judged)
    if as_json:
        typer.echo(json.dumps(evaluation.to_dict() | {"features": used}, allow_nan=False))
        return
    console = Console()
    for table in tables(evaluation, positions=positions, by=by):
        console.print(table)


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names or [text]:
        if name not in PREDICTORS:
            raise InvalidValue("predictors", name, f"must be among {_ALL}")
    return names


def _features(text: str) -> list[str]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    if names not in ([_FEATURES[0]], list(_FEATURES)):
        raise InvalidValue("features", text, f"must be {_FEATURES[0]} or {','.join(_FEATURES)}")
    return names
