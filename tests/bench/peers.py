"""Quality and cost of accord and its peers on a recorded trace: predict, then learn, all in one run."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tests.bench.peer_models import River, Sklearn, Temperature, Window

from accord.learner.basis import DEFAULT_KNOTS, Array
from accord.learner.evaluate.metrics import Mask, Metrics, workload_ece
from accord.learner.evaluate.predictors import PREDICTORS, Predictor
from accord.learner.evaluate.trace import Trace

PEERS: dict[str, Callable[[Trace], Predictor]] = {
    "accord": lambda trace: PREDICTORS["accord"](trace, DEFAULT_KNOTS),
    "accord-no-request": lambda trace: PREDICTORS["accord-no-request"](trace, DEFAULT_KNOTS),
    "vLLM's rule, pooled": lambda trace: PREDICTORS["vllm"](trace, ()),
    "River SGD, pooled": lambda trace: River(trace, keyed=False),
    "River SGD, keyed": lambda trace: River(trace, keyed=True),
    "scikit-learn SGD, pooled": lambda trace: Sklearn(trace, keyed=False),
    "scikit-learn SGD, keyed": lambda trace: Sklearn(trace, keyed=True),
    "statsmodels window, pooled": lambda trace: Window(trace, keyed=False),
    "statsmodels window, keyed": lambda trace: Window(trace, keyed=True),
    "temperature per position": Temperature,
    "batch line, keyed": lambda trace: PREDICTORS["batch"](trace, ()),
}

OFFLINE = ("temperature per position", "batch line, keyed")
"""Have seen labels before they are judged on them, and learn nothing on the way."""


@dataclass(frozen=True)
class Result:
    """Predictions [N, K] of a replay, and the processor time of predicting and learning, seconds."""

    predictions: Array
    seconds: float


def replay(trace: Trace, predictor: Predictor) -> Result:
    """Every step is predicted before it is learnt; only the predictor's own calls are timed."""
    _, request = np.unique(trace.request, return_inverse=True)
    predictions, admitted, seconds = np.empty(trace.features.shape), np.full(trace.rows, trace.k), 0.0
    for rows in trace.steps():
        step = trace.features[rows], trace.workload[rows], request[rows]
        start = time.process_time()
        predictions[rows] = predictor.predict(*step)
        predictor.learn(*step, trace.accepted[rows], admitted[rows])
        seconds += time.process_time() - start
    return Result(predictions, seconds)


def judged(trace: Trace, p: Array, mask: Mask) -> tuple[Metrics, float]:
    """Metrics over the labels of a mask [N, K], and the workloads' ECE."""
    parts = [mask & (trace.workload == slot)[:, None] for slot in range(len(trace.workloads))]
    return Metrics.of(p[mask], trace.y[mask]), workload_ece([Metrics.of(p[m], trace.y[m]) for m in parts])


def main(arguments: Sequence[str] = ()) -> None:
    """Prints a table of the whole trace and its second half, which offline temperatures were not fitted on."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench peers", description=main.__doc__)
    parser.add_argument("--trace", type=Path, help="a recorded trace (npz); the bundled one by default")
    path = parser.parse_args(arguments).trace
    trace = Trace.bundled() if path is None else Trace.load(path)
    late: Mask = trace.labelled & (np.arange(trace.rows) >= trace.rows // 2)[:, None]
    print(f"{trace.pair.draft}, K = {trace.k}, {len(trace.workloads)} workloads, {trace.labels} labels")
    print("| predictor | log-loss | workload ECE | AUC | Brier | log-loss, 2nd half | ECE, 2nd half | time per label |")
    print("|---|---|---|---|---|---|---|---|")
    unit = 0.0
    for name, build in PEERS.items():
        result = replay(trace, build(trace))
        unit = unit or result.seconds
        cells = ["-"] * 4
        if name != OFFLINE[0]:
            whole, ece = judged(trace, result.predictions, trace.labelled)
            cells = [f"{value:.4f}" for value in (whole.log_loss, ece, whole.auc, whole.brier)]
        half, half_ece = judged(trace, result.predictions, late)
        cost = "offline" if name in OFFLINE else f"{result.seconds / unit:.2f}"
        print(f"| {name} | {' | '.join(cells)} | {half.log_loss:.4f} | {half_ece:.4f} | {cost} |", flush=True)


if __name__ == "__main__":
    main()
