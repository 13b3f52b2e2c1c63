"""Metrics from sketches against exact ones at the same coefficients, by workload."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from accord.learner.basis import DEFAULT_KNOTS, SplineBasis, sigmoid
from accord.learner.calibration import Cells, metrics
from accord.learner.coefficients import Coefficients
from accord.learner.evaluate.metrics import METRICS, Metrics
from accord.learner.evaluate.predictors import Accord
from accord.learner.evaluate.prequential import replay
from accord.learner.evaluate.trace import Trace
from accord.learner.sketch import Sketch


def main(arguments: Sequence[str] = ()) -> None:
    """Prints the largest and mean difference over the workloads of a trace, at the coefficients accord ends with."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench sketch_bias", description=main.__doc__)
    parser.add_argument("--trace", type=Path, help="a recorded trace (npz); the bundled one by default")
    path = parser.parse_args(arguments).trace
    trace = Trace.bundled() if path is None else Trace.load(path)
    accord, basis = Accord(trace), SplineBasis(DEFAULT_KNOTS)
    replay(trace, {"accord": accord})
    sketch, labelled = Sketch.zeros(len(trace.workloads), trace.k), trace.labelled
    features = trace.features.astype(np.float64)
    sketch.observe(trace.workload, features, np.zeros(features.shape), trace.accepted, labelled, labelled)
    gaps: dict[str, list[float]] = {name: [] for name in METRICS}
    for slot, (slopes, intercepts) in enumerate(accord.coefficients().values()):
        row, k = np.nonzero(labelled & (trace.workload == slot)[:, None])
        exact = Metrics.of(sigmoid(basis.expand(features[row, k]) @ slopes + intercepts[k]), trace.y[row, k]).to_dict()
        found = metrics(Cells.of(sketch.acceptance[slot], Coefficients(slopes, intercepts), basis))
        for name in METRICS:
            a, b = found[name], exact[name]
            if a is not None and b is not None:
                gaps[name].append(a - b)
    for name, gap in gaps.items():
        print(f"{name:9s} largest {np.abs(gap).max():.5f}   mean {np.mean(gap):+.5f}")


if __name__ == "__main__":
    main()
