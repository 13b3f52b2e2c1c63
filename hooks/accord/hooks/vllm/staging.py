"""Copies between host and device that the decode loop need not wait for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import numpy.typing as npt
import torch


class Fence(Protocol):
    """A point in the device's queue; `torch.cuda.Event` is one."""

    def record(self) -> None:
        """Marks the point behind everything queued so far."""

    def query(self) -> bool:
        """Whether the device has passed it; returns at once."""


class Immediate:
    """The fence of a device whose copies are done when they return: the CPU."""

    def record(self) -> None:
        """Nothing to mark."""

    def query(self) -> bool:
        """Always passed."""
        return True


FenceFactory = Callable[[], Fence]


def fence_factory(device: torch.device) -> FenceFactory:
    """The kind of fence that a device needs."""
    return torch.cuda.Event if device.type == "cuda" else Immediate


class Uploader:
    """Host arrays to one device buffer, through a ring of pinned ones.

    Args:
        target: the device buffer; every upload overwrites its front.
        make_fence: see `fence_factory`.
        depth: pinned buffers. When the device has not finished any of them, the copy goes through pageable memory,
            which is right but may make the host wait.

    Attributes:
        waits: uploads that found no pinned buffer free.
    """

    def __init__(self, target: torch.Tensor, make_fence: FenceFactory, depth: int = 8) -> None:
        pinned = target.device.type == "cuda"
        self._target = target.view(-1)
        self._ring: deque[tuple[torch.Tensor, Any, Fence]] = deque()
        for _ in range(depth):
            host = torch.empty_like(self._target, device="cpu", pin_memory=pinned)
            self._ring.append((host, host.numpy(), make_fence()))
        self._used = 0
        self.waits = 0

    def upload(self, values: npt.NDArray[Any]) -> None:
        """Queues the copy of a flat array, of the target's dtype, to the front of the target."""
        host, view, fence = self._ring[0]
        size = len(values)
        if self._used < len(self._ring):
            self._used += 1
        elif not fence.query():
            self.waits += 1
            self._target[:size].copy_(torch.from_numpy(values.copy()))
            return
        view[:size] = values
        self._target[:size].copy_(host[:size], non_blocking=True)
        fence.record()
        self._ring.rotate(-1)


class Downloader:
    """The front of one device buffer to the host, through two pinned buffers, and zeroed behind the copy.

    Args:
        source: flat device buffer.
        make_fence: see `fence_factory`.
    """

    def __init__(self, source: torch.Tensor, make_fence: FenceFactory) -> None:
        pinned = source.device.type == "cuda"
        self._source = source
        self._free: deque[tuple[torch.Tensor, Fence]] = deque()
        for _ in range(2):
            self._free.append((torch.empty_like(source, device="cpu", pin_memory=pinned), make_fence()))
        self._pending: deque[tuple[torch.Tensor, Fence, Any]] = deque()

    def start(self, size: int, note: Any) -> bool:
        """Queues the copy of the first `size` values and their zeroing; False, with nothing done, if both are busy."""
        if not self._free:
            return False
        host, fence = self._free.popleft()
        front = self._source[:size]
        host[:size].copy_(front, non_blocking=True)
        fence.record()
        front.zero_()
        self._pending.append((host, fence, note))
        return True

    def finished(self, read: Callable[[npt.NDArray[Any], Any], Any]) -> Any | None:
        """read(values, note) of the oldest copy that is done, or None; `read` must not keep the array."""
        if not self._pending or not self._pending[0][1].query():
            return None
        host, fence, note = self._pending.popleft()
        try:
            return read(host.numpy(), note)
        finally:
            self._free.append((host, fence))
