"""Makes the compact trace that the package carries: `python -m accord.learner.evaluate.bundle INPUT OUTPUT`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from .trace import Trace


def compact(trace: Trace) -> Trace:
    """The trace without experimental arrays, features rounded to what float16 can represent (relative 2^-11).

    Rounding moves no probability by more than 0.001 at slope 0.5, and halves the compressed size.
    """
    features = trace.features.astype(np.float16).astype(np.float32)
    return replace(trace, features=features, q_sampled=None, entropy=None)


def bundle(
    source: Annotated[Path, typer.Argument(help="A recorded trace.")],
    target: Annotated[Path, typer.Argument(help="Where the compact trace goes.")],
) -> None:
    """Writes the compact form of a recorded trace."""
    compact(Trace.load(source)).save(target)
    typer.echo(f"{target}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    typer.run(bundle)
