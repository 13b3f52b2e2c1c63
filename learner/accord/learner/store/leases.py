"""One owner for a pair at a time, with a fencing token."""

from __future__ import annotations

from collections.abc import Sequence

from redis.exceptions import NoScriptError

from ..bounds import whole
from . import scripts
from .base import Argument, Base
from .errors import translated
from .keys import PairKeys
from .records import Lease, LeaseInfo, name


class Leases(Base):
    """Leases by Redis' own clock; the clocks of the learners do not matter."""

    @translated()
    def acquire(self, pair_id: str, owner: str, ttl_ms: int) -> Lease | None:
        """Takes a free or lapsed lease, or extends the owner's own; None while somebody else holds it.

        The owner's name must be new for every start of a process: the fence stays while the same owner holds on, and
        grows whenever the lease lapsed or was released in between.

        Args:
            pair_id: whose lease.
            owner: 1 to 256 printable characters.
            ttl_ms: milliseconds from now.

        Raises:
            InvalidValue: for malformed arguments.
            StoreUnavailableError: when Redis cannot serve.
        """
        key = PairKeys(pair_id).lease
        fence = self._run(scripts.ACQUIRE, [key], [name("owner", owner), whole("ttl_ms", ttl_ms, 1)])
        return None if fence is None else Lease(pair_id, owner, fence)

    @translated()
    def renew(self, lease: Lease, ttl_ms: int) -> bool:
        """Extends a lease to `ttl_ms` milliseconds from now; False when it lapsed or passed to somebody else.

        Raises:
            InvalidValue: for a TTL below 1.
            StoreUnavailableError: when Redis cannot serve.
        """
        args: list[Argument] = [lease.owner, lease.fence, whole("ttl_ms", ttl_ms, 1)]
        return bool(self._run(scripts.RENEW, [PairKeys(lease.pair_id).lease], args))

    @translated()
    def renew_all(self, leases: Sequence[Lease], ttl_ms: int) -> list[Lease]:
        """`renew` for many leases in one round trip (one each on a Cluster); those that lapsed or passed on.

        Raises:
            InvalidValue: for a TTL below 1.
            StoreUnavailableError: when Redis cannot serve.
        """
        ttl = whole("ttl_ms", ttl_ms, 1)
        if self.clustered or len(leases) < 2:
            return [lease for lease in leases if not self.renew(lease, ttl)]
        digest = self._script(scripts.RENEW).sha
        with self._client.pipeline(transaction=False) as pipe:
            # By its digest: a learner has no right to send a script with the call.
            for lease in leases:
                pipe.evalsha(digest, 1, PairKeys(lease.pair_id).lease, lease.owner, lease.fence, ttl)
            # A key of a wrong type fails alone: that lease is lost, the others are not.
            replies = pipe.execute(raise_on_error=False)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            # A server that was started again has forgotten its scripts; a single call loads this one.
            return [lease for lease in leases if not self.renew(lease, ttl)]
        return [lease for lease, reply in zip(leases, replies, strict=True) if reply != 1]

    @translated()
    def release(self, lease: Lease) -> bool:
        """Frees a lease for the next owner; False when it passed to somebody else already.

        Raises:
            StoreUnavailableError: when Redis cannot serve.
        """
        return bool(self._run(scripts.RELEASE, [PairKeys(lease.pair_id).lease], [lease.owner, lease.fence]))

    @translated()
    def lease_holder(self, pair_id: str) -> LeaseInfo | None:
        """Who holds the lease now, None when nobody does.

        Raises:
            InvalidValue: for a malformed pair id.
            StoreUnavailableError: when Redis cannot serve.
        """
        found = self._run(scripts.HOLDER, [PairKeys(pair_id).lease])
        if found is None:
            return None
        owner, fence, expires_ms, left_ms = found
        return LeaseInfo(owner.decode(errors="replace"), int(fence), int(expires_ms), int(left_ms))
