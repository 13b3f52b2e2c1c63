"""The web page for operators: files of the package, kept in memory. They hold no data, so nobody has to sign in."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from ..errors import PAGE_CSP
from ..etag import IfNoneMatch

router = APIRouter(include_in_schema=False)

FOLDER = Path(__file__).parent.parent / "page"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",
}


@dataclass(frozen=True)
class PageFile:
    """One file as it is served."""

    body: bytes
    media_type: str
    etag: str


@cache
def files() -> dict[str, PageFile]:
    """Every file of the page, by its path below `page/`."""
    found = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.is_file() and path.suffix in TYPES:
            body = path.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            found[path.relative_to(FOLDER).as_posix()] = PageFile(body, TYPES[path.suffix], tag)
    return found


@router.get("/")
async def index(request: Request) -> Response:
    """The page."""
    return _answer(files()["index.html"], request)


@router.get("/static/{path:path}")
async def static(path: str, request: Request) -> Response:
    """A file of the page."""
    found = files().get(path)
    if found is None:
        raise HTTPException(404, "the page has no such file")
    return _answer(found, request)


def _answer(file: PageFile, request: Request) -> Response:
    # Asked for again at every visit: the names stay the same over releases, and modules of two must not be mixed.
    headers = {"etag": file.etag, "cache-control": "no-cache", "content-security-policy": PAGE_CSP}
    if IfNoneMatch.parse(request.headers.getlist("if-none-match")).matches(file.etag):
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers=headers, media_type=file.media_type)
