"""The command `accord api`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from accord.learner.errors import AccordError

from .app import create_app
from .logs import configure, event
from .server import BindError, Server, address, bind, raise_file_limit
from .settings import SettingError, Settings


def api(
    redis_url: Annotated[str | None, typer.Option(help="Where the store is. [env: ACCORD_REDIS_URL]")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. [env: ACCORD_API_HOST]")] = None,
    port: Annotated[int | None, typer.Option(help="Port, 0 for any free one. [env: ACCORD_API_PORT]")] = None,
    ready_file: Annotated[Path | None, typer.Option(help="File that gets the URL once it is served.")] = None,
) -> None:
    """Serve coefficients to engines, and what was learnt to operators."""
    configure()
    try:
        settings = Settings.from_env(redis_url=redis_url, host=host, port=port)
        app = create_app(settings)
        sock = bind(settings.host, settings.port)
    except (SettingError, AccordError, BindError) as error:
        typer.echo(f"accord api: {error}", err=True)
        raise typer.Exit(2) from None
    raise_file_limit(settings)
    url = address(sock)

    def listening() -> None:
        typer.echo(f"accord api listens on {url}")
        event("listening", address=url)
        if ready_file is not None:
            _write(ready_file, url)

    asyncio.run(Server(app, listening).serve([sock]))
    event("stopped", address=url)


def _write(path: Path, text: str) -> None:
    # Whoever waits for the file must never see half of it.
    part = path.with_name(f".{path.name}.part")
    part.write_text(f"{text}\n", encoding="utf-8")
    part.replace(path)
