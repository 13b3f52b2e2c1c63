"""`python -m accord.learner` runs one learner process."""

from __future__ import annotations

import typer

from .command import learner

if __name__ == "__main__":
    typer.run(learner)
