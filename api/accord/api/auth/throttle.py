"""Slows whoever keeps showing wrong tokens, in bounded memory; good tokens are never slowed."""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

FREE_FAILURES = 10
"""As many failures cost nothing: a person mistypes, and an engine meets a rotation."""
FORGIVEN_PER_S = 0.5
FIRST_WAIT_S, LONGEST_WAIT_S = 0.05, 2.0
CLIENTS = 4_096
WAITING = 256
"""As many refusals are held back at a time; more would only keep sockets busy."""
SAY_EVERY_S = 60.0


@dataclass
class _Client:
    failures: float
    at_s: float
    said_s: float = float("-inf")
    unsaid: int = 0


class Throttle:
    """Failures by client address, the least recent forgotten first.

    Args:
        clock: seconds, monotonic.

    Attributes:
        longest_s: no refusal is held back longer.
        waiting: how many are held back now; the caller counts them.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.longest_s = LONGEST_WAIT_S
        self.waiting = 0
        self._clock = clock
        self._clients: OrderedDict[str, _Client] = OrderedDict()

    def __len__(self) -> int:
        return len(self._clients)

    def failed(self, address: str) -> float:
        """Counts a failure; returns for how many seconds its answer should be held back."""
        now, key = self._clock(), group(address)
        known = self._clients.pop(key, None) or _Client(0.0, now)
        known.failures = max(0.0, known.failures - (now - known.at_s) * FORGIVEN_PER_S) + 1.0
        known.at_s = now
        known.unsaid += 1
        self._clients[key] = known
        if len(self._clients) > CLIENTS:
            self._clients.popitem(last=False)
        over = min(known.failures - FREE_FAILURES, 60.0)
        if over <= 0 or self.waiting >= WAITING:
            return 0.0
        return min(self.longest_s, FIRST_WAIT_S * math.exp2(over - 1.0))

    def to_say(self, address: str) -> int:
        """How many failures the log has not been told of; 0 while it was told a moment ago."""
        now, known = self._clock(), self._clients.get(group(address))
        if known is None or now - known.said_s < SAY_EVERY_S:
            return 0
        count, known.unsaid, known.said_s = known.unsaid, 0, now
        return count


def group(address: str) -> str:
    """The address, or the network that one owner of IPv6 addresses has.

    >>> group("192.0.2.7"), group("2001:db8::1"), group("::ffff:192.0.2.7"), group("unix")
    ('192.0.2.7', '2001:db8::/64', '192.0.2.7', 'unix')
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
