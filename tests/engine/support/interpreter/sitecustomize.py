"""Runs Triton kernels, vLLM's and ours, on a CPU in Triton's interpreter.

Python imports this by itself in every process, also in vLLM's workers, when its folder leads PYTHONPATH. Without
TRITON_INTERPRET=1 it changes nothing.
"""

import os
from typing import Any


def register_cpu_driver() -> None:
    """Makes vLLM keep Triton on a CPU: it looks for a backend of this name, and for one driver that is active."""
    import types

    from triton.backends import backends

    driver = types.SimpleNamespace(is_active=lambda: True)
    backends.setdefault("cpu", types.SimpleNamespace(driver=driver))  # type: ignore[arg-type]


def accept_integer_masks() -> None:
    """Lets a load or store take a mask that the interpreter computed as integers, which compiled Triton takes too.

    `mask & condition`, with a condition that is a scalar on the host, comes out as such.
    """
    import numpy as np
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def patch(name: str, mask_at: int) -> None:
        inner = getattr(InterpreterBuilder, name)

        def outer(self: Any, *args: Any) -> Any:
            mask = args[mask_at]
            if mask.data.dtype != np.bool_:
                mask = TensorHandle(mask.data != 0, mask.dtype)
            return inner(self, *args[:mask_at], mask, *args[mask_at + 1 :])

        setattr(InterpreterBuilder, name, outer)

    patch("create_masked_load", 1)
    patch("create_masked_store", 2)


if os.environ.get("TRITON_INTERPRET") == "1":
    register_cpu_driver()
    accept_integer_masks()
