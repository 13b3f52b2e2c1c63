"""The command `accord api`."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import disable_created_metrics

from accord.learner.errors import InvalidValue

from .app import create_app
from .logs import configure, event
from .server import Server, address, allow_waiters, bind, check_tls
from .settings import Settings
from .whole_file import write_whole


def api(
    redis_url: Annotated[str | None, typer.Option(help="Where the store is. [env: ACCORD_REDIS_URL]")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. [env: ACCORD_API_HOST]")] = None,
    port: Annotated[int | None, typer.Option(help="Port, 0 for any free one. [env: ACCORD_API_PORT]")] = None,
    insecure: Annotated[
        bool | None,
        typer.Option("--insecure", help="Listen beyond loopback without tokens. [env: ACCORD_API_INSECURE]"),
    ] = None,
    ready_file: Annotated[Path | None, typer.Option(help="File that gets the URL once it is served.")] = None,
) -> None:
    """Serve coefficients to engines, and what was learnt to operators.

    Options win over the environment, which also sets ACCORD_API_TOKENS_FILE (who may call), ACCORD_API_TLS_CERT and
    ACCORD_API_TLS_KEY, ACCORD_API_MAX_BODY_BYTES, ACCORD_API_MAX_WAIT_S, ACCORD_API_MAX_WAITERS,
    ACCORD_API_MAX_PAIRS, ACCORD_API_METRICS_MAX_PAIRS and ACCORD_API_METRICS_MAX_WORKLOADS. Without a token file it
    listens on loopback only.
    """
    configure()
    disable_created_metrics()  # type: ignore[no-untyped-call]
    settings = Settings.from_env(redis_url=redis_url, host=host, port=port, insecure=insecure)
    check_tls(settings)
    sock = bind(settings.host, settings.port, loopback_only=settings.tokens_file is None and not settings.insecure)
    app = create_app(allow_waiters(settings))
    tls = (settings.tls_cert, settings.tls_key) if settings.tls_cert and settings.tls_key else None
    url = address(sock, tls is not None)

    failed: list[InvalidValue] = []

    def listening() -> None:
        typer.echo(f"accord api listens on {url}")
        event("listening", address=url)
        if settings.tokens_file is None and settings.insecure:
            event("everybody who reaches this server may change what engines are served", level=logging.WARNING)
        try:
            if ready_file is not None:
                _write(ready_file, url)
        except InvalidValue as error:
            # Told at the end: raised in here it would fill the log with a traceback.
            failed.append(error)
            server.should_exit = True

    server = Server(app, listening, tls)
    asyncio.run(server.serve([sock]))
    event("stopped", address=url)
    if failed:
        raise failed[0]


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, f"{text}\n".encode())
    except OSError as error:
        raise InvalidValue("ready_file", str(path), error.strerror or str(error)) from None
