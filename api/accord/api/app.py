"""Builds the application: routes, errors, middleware, and what lives as long as it does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from starlette.types import Receive, Scope, Send

from accord.learner.store.connect import connect_async, safe_url

from . import errors
from .auth import Auth, protect
from .auth.keyring import Keyring
from .auth.openapi import describe
from .hot_polls import HotPolls
from .large import Large
from .learnt import Learnt
from .logs import event
from .metrics import Metrics, RequestMetricsMiddleware
from .metrics.fleet import Fleet
from .metrics.fleet_cache import FleetCache
from .middleware import BodyLimitMiddleware, HeadersMiddleware, HeadMiddleware, RequestLimitMiddleware
from .routes import ROUTERS
from .services import Services
from .settings import Settings
from .source import Source
from .streams import Streams
from .subscriber import Feeds, Subscriber
from .tables import Tables
from .trail import Trail
from .waiters import Waiters
from .writer import Writer

STORE_TIMEOUT_S = 2.0
CONNECT_TIMEOUT_S = 1.0
"""Somebody waits for every read of the api, so it gives up sooner than a learner would."""


class Application(FastAPI):
    """FastAPI, behind what needs nothing of it.

    `__call__` returns an awaitable and is no coroutine function, so servers must be told that this is ASGI 3.

    Attributes:
        polls: asked first.
    """

    polls: HotPolls

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:  # type: ignore[override]
        """One request, or the lifespan."""
        return self.polls(scope, receive, send)

    def whole(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """The way through all layers and routes."""
        return super().__call__(scope, receive, send)


def create_app(settings: Settings) -> Application:
    """The application; the store is contacted when it starts, and may be away then.

    `app.state.services` holds what the routes share while it runs, `app.state.auth` who may call them. A server that
    shuts down calls `app.state.services.stop()` first, as ASGI says nothing to an application before its
    requests have ended.

    Raises:
        TokenFileError: for a token file that cannot be used.
        UndeclaredRouteError: for a route without a least role.
    """
    keyring = Keyring(settings.tokens_file) if settings.tokens_file is not None else None
    auth = Auth(keyring, settings.insecure)
    metrics = Metrics(auth)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        client, for_large = _client(settings, "api"), _client(settings, "api-large")
        large = Large(for_large)
        source = Source(client, large)
        waiters = Waiters(settings.max_waiters)
        learnt, trail = Learnt(), Trail(client, large, source)
        writer = Writer(client, source, learnt)
        tables = Tables(writer.table, waiters, settings.max_pairs, metrics.table_read)
        streams = Streams(settings.max_streams)
        # Tables first: whoever is told of a change must not be answered from before it.
        feeds = Feeds(tables, streams)
        subscriber = Subscriber(lambda: _client(settings, "api-feed"), feeds, _reporter(settings))
        services = Services(settings, source, learnt, tables, waiters, streams, subscriber, writer, trail, metrics)
        app.state.services = services
        fleet = FleetCache(
            Fleet(client, large, learnt, settings.metrics_max_pairs, settings.metrics_max_workloads).read
        )
        metrics.attach(services, fleet)
        app.polls.services = services
        subscriber.start()
        following = asyncio.create_task(keyring.follow(), name="token file") if keyring is not None else None
        try:
            yield
        finally:
            app.state.services.stop()
            tables.close()
            if following is not None:
                following.cancel()
                with suppress(asyncio.CancelledError):
                    await following
            await fleet.close()
            await subscriber.stop()
            await client.aclose()
            await for_large.aclose()

    app = Application(
        title="accord",
        summary="Learnt acceptance of draft tokens: coefficients, how sure they are, and how well they predict.",
        version=version("accord"),
        lifespan=lifespan,
        # Their pages load scripts from elsewhere, which many clusters cannot reach and the headers here forbid.
        docs_url=None,
        redoc_url=None,
        # A redirect would be an answer that no route declares.
        redirect_slashes=False,
    )
    errors.install(app)
    for router in ROUTERS:
        app.include_router(router)
    app.state.auth = auth
    protect(app, auth)
    describe(app)
    app.add_middleware(BodyLimitMiddleware, limit=settings.max_body_bytes)
    app.add_middleware(RequestLimitMiddleware)
    app.add_middleware(HeadersMiddleware)
    app.add_middleware(HeadMiddleware)
    app.add_middleware(RequestMetricsMiddleware, metrics=metrics.requests)
    app.polls = HotPolls(app.whole, auth, metrics.requests, settings.max_pairs)
    return app


def _client(settings: Settings, role: str) -> Any:
    return connect_async(
        settings.redis_url,
        role=role,
        socket_timeout=STORE_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        # Once more, for a pooled connection that a restarted store has closed.
        retry=Retry(NoBackoff(), 1),
    )


def _reporter(settings: Settings) -> Any:
    def report(reason: str | None) -> None:
        if reason is None:
            event("store reached", store=safe_url(settings.redis_url))
        else:
            event("store lost", level=logging.WARNING, store=safe_url(settings.redis_url), reason=reason)

    return report
