"""`python -m accord.api`: the same as `accord api`."""

import sys

from accord.learner.cli import main

if __name__ == "__main__":
    main(["api", *sys.argv[1:]])
