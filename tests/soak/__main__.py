"""`python -m tests.soak [--minutes 120] [--engines 8]`: the long form; `--from-csv FOLDER` judges one again."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from .plots import draw
from .run import ACCOUNT, SAMPLES, Plan, soak
from .series import Series
from .site import Size
from .verdict import judge, table

LONG_MINUTES = 30.0
"""Shorter soaks say nothing of memory."""


def main() -> int:
    """Soaks, judges and draws; 1 when something does not hold."""
    parser = argparse.ArgumentParser(prog="tests.soak")
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--engines", type=int, default=Size.engines)
    parser.add_argument("--rate", type=float, default=Size.rate, help="decode steps a second of each engine")
    parser.add_argument("--churn", type=float, default=Size.churn_s, help="seconds until an engine is replaced")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between samples")
    parser.add_argument("--folder", type=Path, default=None, help="for logs and samples; a new one by default")
    parser.add_argument("--plots", type=Path, default=None, help="where pictures go; the same by default")
    parser.add_argument("--from-csv", type=Path, default=None, metavar="FOLDER", help="soak nothing: judge that one")
    given = parser.parse_args()
    size = Size(engines=given.engines, rate=given.rate, churn_s=given.churn)
    folder = given.from_csv or given.folder or Path(tempfile.mkdtemp(prefix="accord-soak-"))
    if given.from_csv is None:
        os.nice(5)
        print(f"logs and samples in {folder}", flush=True)
        soak(folder, size, Plan(60.0 * given.minutes, given.every), lambda line: print(line, flush=True))
    series, account = Series(folder / SAMPLES), json.loads((folder / ACCOUNT).read_text())
    lines, wrong = judge(series, account, size, long=series.seconds >= 60.0 * LONG_MINUTES)
    print(table(lines))
    lost = ", ".join(f"{labels} {why}" for why, labels in account["lost"].items() if labels) or "none"
    print(f"{account['boots']} boots; engines counted {account['observed']} labels, learnt {account['learnt']}; "
          f"lost {lost}; {json.dumps(account['counters'])}")  # fmt: skip
    print(json.dumps(account["answers"]))
    for path in draw(series, size, given.plots or folder):
        print(f"{path}: {path.stat().st_size} bytes")
    for line in wrong:
        print(f"WRONG: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
