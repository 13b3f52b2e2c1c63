"""What a decode step costs the host: Python time of our `predict` and `step` over vLLM's own, interleaved.

    .venv-engine/bin/python tests/bench/host_cost.py [--json]

Needs vLLM and Triton but no GPU. Kernels go through Triton's real launch path up to the point where the driver would be
called, which does nothing here: what is timed is Python, argument binding and the look-up of the compiled kernel.
Figures are per decode step, medians over rounds in which both sides run in turn. Where drafts are captured in a CUDA
graph, `predict` costs the host nothing on either side and the row "step alone" is what counts.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

GOAL = 1.2
K = 7
SLOTS = 256
ENGINE_PYTHON = Path(__file__).parents[2] / ".venv-engine" / "bin" / "python"


class IdleDriver:
    """A Hopper that never computes."""

    def get_current_device(self) -> int:
        """The only one."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """The default one."""
        return 0

    def get_current_target(self) -> Any:
        """What kernels would be compiled for."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)


def stub_launches() -> None:
    """Lets every kernel launch end where the driver would be called. Call it before vLLM is imported."""
    from triton.backends import backends
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    # vLLM keeps Triton on a machine without GPU only when it finds an active backend of this name.
    found = types.SimpleNamespace(is_active=lambda: True)
    useless = types.SimpleNamespace(supports_target=lambda target: False)
    backends.setdefault("cpu", types.SimpleNamespace(driver=found, compiler=useless))
    driver.set_active(IdleDriver())
    nothing = types.SimpleNamespace(
        launch_metadata=lambda *a: None, run=lambda *a: None, function=None, packed_metadata=None
    )

    def compile_nothing(self: Any, key: Any, signature: Any, device: int, *rest: Any) -> Any:
        _ = self.cache_key  # collects the globals that every later launch checks
        self.device_caches[device][0][key] = nothing
        return nothing

    JITFunction._do_compile = compile_nothing


def cases(rows: int) -> dict[str, tuple[Callable[[], None], Callable[[], None]]]:
    """By name, a decode step of ours and of vLLM's."""
    import torch
    from vllm.v1.worker.gpu.spec_decode.acceptance_estimator import OnlineAcceptanceEstimator

    from accord.hooks.vllm.estimator import AcceptanceEstimator

    cpu = torch.device("cpu")
    ours, theirs = AcceptanceEstimator(SLOTS, K, cpu, workloads=32), OnlineAcceptanceEstimator(SLOTS, K, cpu)
    one, block = torch.zeros(rows, 129_280, dtype=torch.bfloat16), torch.zeros(rows * K, 4096, dtype=torch.bfloat16)
    idx, every = torch.arange(rows), torch.arange(rows).repeat_interleave(K)
    position, positions = torch.tensor(0), torch.arange(K).repeat(rows)
    confidence, temperature = torch.zeros(SLOTS, K), torch.ones(SLOTS)
    counts = torch.zeros(rows, dtype=torch.int32)

    def autoregressive(estimator: Any) -> Callable[[], None]:
        def run() -> None:
            estimator.step(idx, counts, counts)
            for _ in range(K):
                estimator.predict(one, idx, position, confidence, temperature)

        return run

    def block_drafting(estimator: Any) -> Callable[[], None]:
        def run() -> None:
            estimator.step(idx, counts, counts)
            estimator.predict(block, every, positions, confidence, temperature)

        return run

    def alone(estimator: Any) -> Callable[[], None]:
        return lambda: estimator.step(idx, counts, counts)

    kinds = {f"{K} x predict + step": autoregressive, "block predict + step": block_drafting, "step alone": alone}
    return {name: (kind(ours), kind(theirs)) for name, kind in kinds.items()}


def microseconds(run: Callable[[], None], steps: int) -> float:
    """Mean time of a step."""
    start = time.perf_counter()
    for _ in range(steps):
        run()
    return (time.perf_counter() - start) / steps * 1e6


def measure(rows: int = 64, rounds: int = 60, steps: int = 40) -> dict[str, dict[str, float]]:
    """By case: microseconds of ours and of vLLM's, and the median of the ratios of the rounds."""
    out = {}
    for name, (ours, theirs) in cases(rows).items():
        microseconds(ours, steps), microseconds(theirs, steps)
        timed = []
        for turn in range(rounds):
            first, second = (ours, theirs) if turn % 2 else (theirs, ours)
            pair = microseconds(first, steps), microseconds(second, steps)
            timed.append(pair if turn % 2 else pair[::-1])
        out[name] = {
            "ours_us": statistics.median(a for a, _ in timed),
            "vllm_us": statistics.median(b for _, b in timed),
            "ratio": statistics.median(a / b for a, b in timed),
        }
    return out


def elsewhere(arguments: Sequence[str]) -> int:
    """Runs this in the environment of `make test-engine`, if there is one."""
    if not ENGINE_PYTHON.exists():
        print("skipped: there is no vLLM here, and no .venv-engine (make test-engine makes it)")
        return 0
    return subprocess.run([ENGINE_PYTHON, "-W", "ignore", __file__, *arguments], check=False).returncode


def main(argv: Sequence[str] = ()) -> int:
    """Prints the figures; exit code 1 when the ratio of a whole step misses the goal."""
    if importlib.util.find_spec("vllm") is None:
        return elsewhere(argv)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=64, help="requests in a batch (default 64)")
    parser.add_argument("--rounds", type=int, default=60, help="turns of each side (default 60)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args(argv)
    if not 1 <= arguments.rows <= SLOTS or arguments.rounds < 1:
        parser.error(f"rows must be 1 to {SLOTS}, rounds at least 1")
    if os.environ.get("TRITON_INTERPRET") == "1":
        parser.error("unset TRITON_INTERPRET: the interpreter has another launch path")
    stub_launches()
    results = measure(arguments.rows, arguments.rounds)
    if arguments.json:
        print(json.dumps(results))
    else:
        for name, row in results.items():
            print(f"{name:22s} ours {row['ours_us']:7.1f} us  vLLM {row['vllm_us']:7.1f} us  ratio {row['ratio']:.2f}")
        print(f"goal: ratio of predict + step <= {GOAL}")
    return int(any(row["ratio"] > GOAL for name, row in results.items() if "predict" in name))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
