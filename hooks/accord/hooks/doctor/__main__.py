"""`python -m accord.hooks.doctor`: the same as `accord doctor`."""

import typer

from .command import doctor

if __name__ == "__main__":
    typer.run(doctor)
