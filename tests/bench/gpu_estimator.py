# ruff: noqa: E402, I001  # the interpreter must be chosen, and the paths set, before anything is imported
"""Our acceptance estimator on a GPU: every kernel against float64, then timed against vLLM's own, interleaved.

    python tests/bench/gpu_estimator.py [--vllm-file .../vllm/v1/worker/gpu/spec_decode/acceptance_estimator.py]

Needs a GPU, torch, Triton and NumPy. vLLM's estimator is taken from an installed vLLM, or from its source file; without
either, only the checks run. A timed step is K calls of `predict` and one of `step`, captured in one CUDA graph on each
side, so that device time is compared and not launches. Takes less than three minutes on an H200. Exit code 1 when a
check or a goal fails. `--dry-run` goes through everything with tiny sizes on a CPU, in Triton's interpreter, untimed.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import importlib.util
import os
import statistics
import sys
import tempfile
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "learner"), str(ROOT / "hooks")]
if "--dry-run" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"
    sys.path.insert(0, str(ROOT / "tests" / "engine" / "support" / "interpreter"))
    import sitecustomize

    importlib.reload(sitecustomize)

import numpy as np
import torch

from accord.hooks.vllm.estimator import AcceptanceEstimator
from accord.learner.basis import SplineBasis
from tests.engine.support.reference import Both, assert_close, random_rows

GOALS = {1: 1.0, 8: 1.15, 32: 1.15}
Step = Callable[[], None]


def stock_class(path: Path | None) -> Any | None:
    """vLLM's estimator: from its source file, else from an installed vLLM, else None."""
    if path is None:
        if importlib.util.find_spec("vllm") is None:
            return None
        return importlib.import_module("vllm.v1.worker.gpu.spec_decode.acceptance_estimator").OnlineAcceptanceEstimator
    import triton
    import triton.language as tl

    # The file needs of vLLM only Triton and one device function, which the file next to it holds.
    neighbour = ast.parse((path.parent / "rejection_sampler_utils.py").read_text())
    wanted = [n for n in neighbour.body if isinstance(n, ast.FunctionDef) and n.name == "_compute_max_and_sumexp"]
    folder = Path(tempfile.mkdtemp())
    (folder / "helper.py").write_text(f"import triton\nimport triton.language as tl\n\n{ast.unparse(wanted[0])}\n")
    for name in ("vllm", "vllm.v1", "vllm.v1.worker", "vllm.v1.worker.gpu", "vllm.v1.worker.gpu.spec_decode"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["vllm.triton_utils"] = types.ModuleType("vllm.triton_utils")
    sys.modules["vllm.triton_utils"].__dict__.update(tl=tl, triton=triton)
    from_file("vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils", folder / "helper.py")
    return from_file("vllm.v1.worker.gpu.spec_decode.acceptance_estimator", path).OnlineAcceptanceEstimator


def from_file(name: str, path: Path) -> Any:
    """The module of a file, under another name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Bench:
    """Checks and timings of one size.

    Args:
        device: where it runs.
        rows, vocabulary, k: of the timed batches.
    """

    def __init__(self, device: torch.device, rows: int, vocabulary: int, k: int) -> None:
        self.device, self.rows, self.vocabulary, self.k = device, rows, vocabulary, k
        self.generator = torch.Generator(device).manual_seed(0)

    def tensor(self, values: Any, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        """On the device."""
        return torch.as_tensor(values, dtype=dtype, device=self.device)

    def logits(self, rows: int, scale: float = 3.0, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        """Random logits with a mode that leads now more, now less."""
        x = torch.randn(rows, self.vocabulary, generator=self.generator, device=self.device) * scale
        x[:, 7] += torch.linspace(0.0, 60.0, rows, device=self.device)
        return x.to(dtype)

    def check_features(self) -> float:
        """The largest relative error of any feature, extremes included; raises beyond 1e-5."""
        worst = 0.0
        for dtype in (torch.bfloat16, torch.float32):
            x = self.logits(self.rows, dtype=dtype)
            x[0] = 1.5
            x[1, ::3] = x[1].max()
            x[2, 5:] = float("-inf")
            temperature = torch.linspace(0.0, 2.0, self.rows, device=self.device)
            estimator = AcceptanceEstimator(self.rows, self.k, self.device, basis=SplineBasis(()))
            confidence = torch.zeros(self.rows, self.k, device=self.device)
            idx = torch.arange(self.rows, device=self.device)
            scaled = x.double() / torch.where(temperature > 0, temperature, 1.0).double()[:, None]
            rest = scaled.scatter(1, scaled.argmax(dim=1, keepdim=True), float("-inf"))
            expected = (scaled.amax(dim=1) - torch.logsumexp(rest, dim=1)).clamp(-40.0, 40.0)
            # Many runs: that a row's last program sees all others' sums must not depend on luck.
            for _ in range(1 if self.device.type == "cpu" else 500):
                estimator.features.zero_()
                estimator.predict(x, idx, self.tensor(0, torch.int64), confidence, temperature)
                error = (estimator.features[:, 0].double() - expected).abs() / (expected.abs() + 0.2)
                worst = max(worst, float(error.max()))
                if worst > 1e-5:
                    raise AssertionError(f"features are off by {worst:.2e}")
        return worst

    def check_sums(self, workloads: int) -> None:
        """Predictions, sums, sketches and effects against the NumPy reference over two rounds."""
        both = Both(workloads, self.k, self.rows, seed=workloads, device=self.device)
        both.assign(np.arange(self.rows), both.rng.integers(0, workloads, self.rows))
        for _ in range(2):
            both.apply(random_rows(both.rng, workloads, self.k, both.basis))
            both.random_steps(3, self.rows)
            confidence = torch.zeros(self.rows, self.k, device=self.device)
            block = self.logits(self.rows * self.k)
            requests = torch.arange(self.rows, device=self.device)
            positions = torch.arange(self.k, device=self.device).repeat(self.rows)
            ones = torch.ones(self.rows, device=self.device)
            both.ours.predict(block, requests.repeat_interleave(self.k), positions, confidence, ones)
            index = np.arange(self.rows)
            expected = both.reference.predict(both.ours.features.cpu().double().numpy(), both.workload_of, index)
            np.testing.assert_allclose(confidence.cpu().numpy(), expected, rtol=1e-4, atol=1e-7)
            assert both.ours.drain(with_sketch=True)
            while (drained := both.ours.collect()) is None:
                time.sleep(0.001)
            sketch = both.reference.drain_sketch()
            assert_close(drained.moments, both.reference.drain())
            np.testing.assert_allclose(drained.sketch.acceptance, sketch.acceptance, rtol=1e-5, atol=1e-3)
            np.testing.assert_allclose(drained.sketch.survival.sum(2), sketch.survival.sum(2), rtol=1e-4, atol=1e-3)
            effects = np.stack([both.reference.effects.residual, both.reference.effects.curvature], axis=1)
            np.testing.assert_allclose(both.ours._effects.cpu().numpy()[:, :2], effects, rtol=1e-4, atol=1e-4)

    def check_graph(self) -> None:
        """A captured `predict` sees coefficients that were loaded after the capture."""
        estimator = AcceptanceEstimator(self.rows, self.k, self.device, basis=SplineBasis(()))
        run, confidence = self.decode_step(estimator, ("predict",))
        replay = self.capture(run)
        replay()
        before = confidence.clone()
        estimator.load([[0.0]], [[1.0] * self.k], [0.0])
        replay()
        assert not torch.equal(before, confidence)
        torch.testing.assert_close(confidence, torch.full_like(confidence, 1.0).sigmoid())

    @functools.cached_property
    def inputs(self) -> tuple[list[torch.Tensor], tuple[torch.Tensor, ...]]:
        """Logits of each position, and verdicts; both sides read the same."""
        idx = torch.randperm(self.rows, generator=self.generator, device=self.device)
        sampled = torch.randint(0, self.k + 2, (self.rows,), generator=self.generator, device=self.device)
        rejected = (self.k + 1 - sampled).clamp(0, self.k)
        return [self.logits(self.rows) for _ in range(self.k)], (idx, self.tensor(sampled), self.tensor(rejected))

    def decode_step(self, estimator: Any, parts: tuple[str, ...] = ("step", "predict")) -> tuple[Step, torch.Tensor]:
        """A decode step, or a part of it, and the confidences that it writes."""
        batches, verdicts = self.inputs
        confidence = torch.zeros(self.rows, self.k, device=self.device)
        temperature = torch.ones(self.rows, device=self.device)
        positions = [self.tensor(k, torch.int64) for k in range(self.k)]

        def run() -> None:
            if "step" in parts:
                estimator.step(*verdicts)
            if "predict" in parts:
                for x, k in zip(batches, positions, strict=True):
                    estimator.predict(x, verdicts[0], k, confidence, temperature)

        return run, confidence

    def capture(self, run: Step) -> Step:
        """The run as a CUDA graph, or as it is on a CPU."""
        if self.device.type == "cpu":
            return run
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        return graph.replay

    def milliseconds(self, run: Step, repeats: int) -> float:
        """Mean device time of a run."""
        if self.device.type == "cpu":
            run()
            return float("nan")
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / repeats

    def compare(self, stock: Any, workloads: int, turns: int, repeats: int) -> dict[str, float]:
        """Microseconds of a decode step, and of its two parts, on both sides, and the median ratios of the turns."""
        ours = AcceptanceEstimator(self.rows, self.k, self.device, workloads=workloads)
        ours.assign(np.arange(self.rows), np.arange(self.rows) % workloads)
        theirs = stock(self.rows, self.k, self.device)
        theirs.REFIT_INTERVAL = 1 << 60
        out = {}
        for name, parts in (("", ("step", "predict")), ("predict_", ("predict",)), ("step_", ("step",))):
            pair = [self.capture(self.decode_step(side, parts)[0]) for side in (ours, theirs)]
            timed = [[self.milliseconds(run, repeats) * 1e3 for run in pair] for _ in range(turns + 1)][1:]
            out[f"{name}ours_us"] = statistics.median(a for a, _ in timed)
            out[f"{name}vllm_us"] = statistics.median(b for _, b in timed)
            out[f"{name}ratio"] = statistics.median(a / b for a, b in timed)
        return out

    def drain_microseconds(self) -> float:
        """Device time of a drain with sketches at W = 32, once a round."""
        estimator = AcceptanceEstimator(self.rows, self.k, self.device, workloads=32)

        def run() -> None:
            estimator.drain(with_sketch=True)

        times = []
        for _ in range(20):
            times.append(self.milliseconds(run, 1) * 1e3)
            estimator.collect()
        return statistics.median(times)


def main(argv: Sequence[str] = ()) -> int:
    """Runs checks and timings, and prints one line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vllm-file", type=Path, help="acceptance_estimator.py of a vLLM source tree")
    parser.add_argument("--turns", type=int, default=25, help="turns of each side (default 25)")
    parser.add_argument("--repeats", type=int, default=20, help="decode steps in a turn (default 20)")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes on a CPU, untimed")
    arguments = parser.parse_args(argv)
    if arguments.turns < 1 or arguments.repeats < 1:
        parser.error("turns and repeats must be at least 1")
    if arguments.vllm_file is not None and not (arguments.vllm_file.parent / "rejection_sampler_utils.py").is_file():
        parser.error(f"{arguments.vllm_file} has no rejection_sampler_utils.py next to it")
    if not arguments.dry_run and not torch.cuda.is_available():
        parser.error("no GPU here; --dry-run goes without")
    device = torch.device("cpu" if arguments.dry_run else "cuda")
    print(f"torch {torch.__version__}, {'cpu' if arguments.dry_run else torch.cuda.get_device_name()}")
    stock = stock_class(arguments.vllm_file)
    if stock is None:
        print("no vLLM installed and no --vllm-file: checks only")
    failed = 0
    for rows in (5,) if arguments.dry_run else (64, 256):
        bench = Bench(device, rows, *((600, 2) if arguments.dry_run else (129_280, 7)))
        print(f"{rows} requests: features within {bench.check_features():.1e} of float64", flush=True)
        for workloads in (1, 2) if arguments.dry_run else GOALS:
            bench.check_sums(workloads)
            print(
                f"{rows} requests, W = {workloads:2d}: predictions, sums and sketches equal the reference", flush=True
            )
        bench.check_graph()
        print(f"{rows} requests: captured predictions follow new coefficients")
        print(f"{rows} requests: a drain takes {bench.drain_microseconds():.1f} us, once a round")
        for workloads in () if stock is None else (1, 2) if arguments.dry_run else GOALS:
            turns, repeats = (1, 1) if arguments.dry_run else (arguments.turns, arguments.repeats)
            row = bench.compare(stock, workloads, turns, repeats)
            goal = GOALS.get(workloads, 1.15)
            failed += row["ratio"] > goal
            parts = ", ".join(
                f"{label} {row[name + 'ours_us']:.1f} / {row[name + 'vllm_us']:.1f} us = {row[name + 'ratio']:.3f}"
                for label, name in (("decode step", ""), ("predict", "predict_"), ("step", "step_"))
            )
            print(f"{rows} requests, W = {workloads:2d}: ours / vLLM: {parts} (goal {goal})", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
