"""`make bench`: every benchmark, one after the other."""

from __future__ import annotations

import importlib
import sys

BENCHES = ("latency", "refit_ratio")

if __name__ == "__main__":
    for name in sys.argv[1:] or BENCHES:
        print(f"== {name}")
        importlib.import_module(f"tests.bench.{name}").main()
        print()
