"""`python -m tests.soak [--minutes 120] [--engines 8]`: the long form."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from .run import Plan, soak
from .site import Size


def main() -> int:
    """Soaks and judges."""
    parser = argparse.ArgumentParser(prog="tests.soak")
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--engines", type=int, default=Size.engines)
    parser.add_argument("--rate", type=float, default=Size.rate, help="decode steps a second of each engine")
    parser.add_argument("--churn", type=float, default=Size.churn_s, help="seconds until an engine is replaced")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between samples")
    parser.add_argument("--folder", type=Path, default=None, help="for logs and samples; a new one by default")
    given = parser.parse_args()
    os.nice(5)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="accord-soak-"))
    print(f"logs and samples in {folder}", flush=True)
    size = Size(engines=given.engines, rate=given.rate, churn_s=given.churn)
    soak(folder, size, Plan(60.0 * given.minutes, given.every), lambda line: print(line, flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
