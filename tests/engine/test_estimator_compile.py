from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("architecture", [80, 90, 100])
def test_kernels_compile_for_gpus(architecture: int, tmp_path: Path) -> None:
    """Every kernel compiles down to machine code for Ampere, Hopper and Blackwell, with arrivals counted in order."""
    script = Path(__file__).parent / "support" / "compile_kernels.py"
    environment = {name: value for name, value in os.environ.items() if name not in ("TRITON_INTERPRET", "PYTHONPATH")}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(architecture)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    built = json.loads(done.stdout.splitlines()[-1])
    assert set(built) == {"predict/1/False", "predict/1/True", "step/1", "predict/4/False", "predict/4/True", "step/4"}
    assert all(atomics == ["atom.global.gpu.acq_rel.add.u32"] for name, atomics in built.items() if "predict" in name)
