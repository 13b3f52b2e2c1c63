"""Fails what reads device data on the host, or works with torch where only kernels may run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.interpreter import InterpretedFunction

READS = (
    *("item", "tolist", "numpy", "cpu", "nonzero", "argwhere", "unique", "masked_select", "to", "type"),
    *("__bool__", "__int__", "__float__", "__index__", "__array__", "__len__", "__iter__", "__contains__", "__repr__"),
)
WAITS = ("torch.cuda.synchronize", "torch.cuda.Event.synchronize", "torch.cuda.Stream.synchronize")
READING_OPERATORS = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "_unique2", "_to_copy")


class HiddenSynchronisation(AssertionError):
    """Something read a tensor on the host, or waited for the device."""


class _Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in READING_OPERATORS:
            raise HiddenSynchronisation(f"aten::{name}")
        self.seen.append(name)
        return func(*args, **(kwargs or {}))


def _forbidden(name: str) -> Callable[..., Any]:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise HiddenSynchronisation(name)

    return fail


@contextmanager
def no_hidden_synchronisation() -> Iterator[list[str]]:
    """Within it kernels are not run, and reading a tensor raises; yields the names of the torch operators called."""
    with _Operators() as operators, mock.patch.object(InterpretedFunction, "run", return_value=None):
        patches = [mock.patch.object(torch.Tensor, name, _forbidden(f"Tensor.{name}")) for name in READS]
        patches += [mock.patch(name, _forbidden(name)) for name in WAITS]
        for patch in patches:
            patch.start()
        try:
            yield operators.seen
        finally:
            for patch in reversed(patches):
                patch.stop()
