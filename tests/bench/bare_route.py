"""One bare Starlette route that answers fixed bytes, served as the api is served."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from accord.api.server import BACKLOG, DRAIN_S, address, bind


def serve(folder: Path) -> None:
    """Answers with the bytes and headers that the folder holds, 304 when the tag is the one in the request."""
    body, headers = (folder / "body").read_bytes(), json.loads((folder / "headers").read_text())

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type="application/json")

    app = Starlette(routes=[Route("/v1/pairs/{pair}/coefficients", answer)])
    sock = bind("127.0.0.1", 0)
    config = uvicorn.Config(
        app, access_log=False, log_config=None, server_header=False, proxy_headers=False, lifespan="on", ws="none",
        http="h11", backlog=BACKLOG, timeout_keep_alive=75, timeout_graceful_shutdown=DRAIN_S,
    )  # fmt: skip
    server = uvicorn.Server(config)
    (folder / "bare.part").write_text(address(sock))
    (folder / "bare.part").rename(folder / "bare")
    asyncio.run(server.serve([sock]))


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
