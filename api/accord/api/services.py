"""What the routes share, and how they get at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Path, Query, Request

from accord.learner.errors import InvalidValue
from accord.learner.pair import check_pair_id
from accord.learner.workload import WorkloadKey

from .errors import ValueInvalidError
from .learnt import Learnt
from .metrics import Metrics
from .settings import Settings
from .source import Source
from .streams import Streams
from .subscriber import Subscriber
from .tables import Tables
from .trail import Trail
from .waiters import Waiters
from .writer import Writer


@dataclass(frozen=True)
class Services:
    """One of each for an application, made when it starts."""

    settings: Settings
    source: Source
    learnt: Learnt
    tables: Tables
    waiters: Waiters
    streams: Streams
    subscriber: Subscriber
    writer: Writer
    trail: Trail
    metrics: Metrics

    def stop(self) -> None:
        """Ends what clients wait for: the server is shutting down."""
        self.waiters.stop()
        self.streams.stop()


# All asynchronous: FastAPI would send the others through a pool of threads, for every request.


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


async def _pair_id(
    pair: Annotated[str, Path(description="Pair id", examples=["target.draft.eagle.greedy.k5-7fb6a352"])],
) -> str:
    try:
        return check_pair_id(pair)
    except InvalidValue as error:
        raise ValueInvalidError(error.why, field="pair", value=pair) from None


async def _workload_key(key: Annotated[str, Path(description="Workload, `label:class`")]) -> str:
    try:
        return str(WorkloadKey.parse(key))
    except ValueError as error:
        raise ValueInvalidError(str(error), field="key", value=key) from None


async def _workload_filter(
    workload: Annotated[str | None, Query(description="Only what concerns this workload")] = None,
) -> str | None:
    try:
        return None if workload is None else str(WorkloadKey.parse(workload))
    except ValueError as error:
        raise ValueInvalidError(str(error), field="workload", value=workload) from None


UseServices = Annotated[Services, Depends(_services)]
PairId = Annotated[str, Depends(_pair_id)]
Key = Annotated[str, Depends(_workload_key)]
WorkloadFilter = Annotated[str | None, Depends(_workload_filter)]
