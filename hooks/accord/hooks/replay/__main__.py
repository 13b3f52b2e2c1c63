"""`python -m accord.hooks.replay`: a stand-in engine as a process of its own."""

import typer

from .command import replay

if __name__ == "__main__":
    typer.run(replay)
