"""`python -m accord.api`: the same as `accord api`."""

import typer

from .command import api

if __name__ == "__main__":
    typer.run(api)
