"""`python -m tests.chaos [--seed N] [--minutes M] [KIND ...]`: the long form."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from .campaign import KINDS, run
from .stack import Size

SHARES = {"standalone": 0.6, "sentinel": 0.22, "cluster": 0.18}


def main() -> int:
    """Runs the kinds one after the other; 1 when anything was wrong."""
    parser = argparse.ArgumentParser(prog="tests.chaos")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; all when left out")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31))
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--pace", type=float, default=1.0)
    parser.add_argument("--engines", type=int, default=20)
    given = parser.parse_args()
    if unknown := set(given.kinds) - set(KINDS):
        parser.error(f"no such kind: {', '.join(sorted(unknown))}")
    print(f"seed {given.seed}", flush=True)
    wrong = False
    for kind in given.kinds or KINDS:
        folder = Path(tempfile.mkdtemp(prefix=f"accord-chaos-{kind}-"))
        print(f"{kind}: logs in {folder}", flush=True)
        seconds = 60.0 * given.minutes * SHARES[kind]
        size = Size(engines=given.engines, pairs=3 if kind == "cluster" else 2, pace=given.pace)
        report = run(kind, given.seed, seconds, folder, size, lambda line: print(line, flush=True))
        print("\n".join(report.lines()), flush=True)
        wrong = wrong or bool(report.verdict.faults)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
