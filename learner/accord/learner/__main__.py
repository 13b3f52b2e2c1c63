"""`python -m accord.learner` runs one learner process."""

from __future__ import annotations

import sys

from .cli import main

if __name__ == "__main__":
    main(["learner", *sys.argv[1:]])
