"""Compiles every kernel for the GPU architecture named on the command line; needs no GPU, but no interpreter either."""

from __future__ import annotations

import json
import sys
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from accord.hooks.vllm.estimator import REQUESTS_BLOCK, ROWS_BLOCK, split_vocabulary
from accord.hooks.vllm.layout import Layout
from accord.hooks.vllm.predict_kernel import predict_kernel
from accord.hooks.vllm.step_kernels import assign_kernel, step_kernel
from accord.learner.basis import SplineBasis
from accord.learner.moments import GRID
from accord.learner.sketch import BINS, SURVIVAL_BINS

TYPES = {"logits_ptr": "*bf16", "draft_step_ptr": "*i64"}
INTEGERS = ("workloads_ptr", "arrived_ptr", "idx_mapping_ptr", "sampled_ptr", "rejected_ptr", "staged_ptr")


def kind(name: str) -> str:
    """The type of a kernel's argument, by its name."""
    if name.endswith("_ptr"):
        return TYPES.get(name, "*i32" if name in INTEGERS else "*fp32")
    return "i32"


def build(kernel: Any, warps: int, arch: int, **constants: Any) -> str:
    """The PTX of a kernel, after it went through the assembler too."""
    signature = {name: "constexpr" if name in constants else kind(name) for name in kernel.arg_names}
    aligned = {(at,): [["tt.divisibility", 16]] for at, name in enumerate(kernel.arg_names) if name.endswith("_ptr")}
    source = ASTSource(kernel, signature, constexprs=constants, attrs=aligned)
    built = compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": warps})
    assert built.asm["cubin"]
    return str(built.asm["ptx"])


def main(arch: int) -> None:
    """Prints, as JSON, which kernels were built, and the atomic that counts arrivals."""
    built = {}
    for knots in ((), (0.0, 2.0, 4.0)):
        layout = Layout(32, 7, SplineBasis(knots))
        k, f = layout.k, layout.basis.size
        splits, padded, block = split_vocabulary(129_280)
        for per_row in (False, True):
            ptx = build(
                predict_kernel,
                4,
                arch,
                K=k,
                F=f,
                STEP_PER_ROW=per_row,
                BLOCK=block,
                SPLITS=splits,
                PADDED_SPLITS=padded,
            )
            built[f"predict/{f}/{per_row}"] = [line.split()[1] for line in ptx.splitlines() if "atom." in line]
        padded_sums = 1 << (layout.row - 1).bit_length()
        for rows, warps in ((ROWS_BLOCK, 1), (1024, 4)):
            sizes = {"W": 32, "K": k, "F": f, "GRID": GRID, "SUMS": layout.row, "PADDED_SUMS": padded_sums}
            sizes |= {"BINS": BINS, "SURVIVAL_BINS": SURVIVAL_BINS, "BLOCK": rows, "PART": REQUESTS_BLOCK}
            build(step_kernel, warps, arch, **sizes)
        build(assign_kernel, 4, arch, FRESH=True, BLOCK=ROWS_BLOCK)
        built[f"step/{f}"] = ["step_kernel", "assign_kernel"]
    print(json.dumps(built))


if __name__ == "__main__":
    main(int(sys.argv[1]))
