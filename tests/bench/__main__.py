"""`make bench`: every benchmark, one after the other; `python -m tests.bench NAME [OPTIONS]` runs one."""

from __future__ import annotations

import importlib
import itertools
import sys

BENCHES = (
    "latency",
    "refit_ratio",
    "peers",
    "host_cost",
    "batch_decode",
    "learner_throughput",
    "api_ratio",
    "long_polls",
    "agent_cost",
    "redis_memory",
    "fleet_simulation",
    "scale_out",
)

if __name__ == "__main__":
    names = list(itertools.takewhile(lambda word: not word.startswith("-"), sys.argv[1:]))
    options = sys.argv[1 + len(names) :]
    for name in names or BENCHES:
        print(f"== {name}")
        main = importlib.import_module(f"tests.bench.{name}").main
        main(options) if options else main()
        print()
