"""The files of the web page, as they are served."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.api.harness import RunningApi

from accord.api.routes.page import FOLDER, files

SCRIPTS = sorted(path for path in FOLDER.rglob("*.js") if "vendor" not in path.parts)


def test_index(api: RunningApi) -> None:
    """The page is served at the root, with a policy that allows nothing from elsewhere and nothing inline."""
    answer = api.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-cache"


def test_every_file(api: RunningApi) -> None:
    """Every file has its type and an ETag that is answered with 304."""
    types = {
        ".js": "text/javascript",
        ".css": "text/css",
        ".svg": "image/svg+xml",
        ".html": "text/html",
        "": "text/plain",
    }
    for name, file in files().items():
        answer = api.get(f"/static/{name}")
        assert answer.status_code == 200
        assert answer.content == file.body
        assert answer.headers["content-type"].startswith(types[Path(name).suffix])
        again = api.get(f"/static/{name}", etag=answer.headers["etag"])
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == answer.headers["etag"]
    assert {"index.html", "style.css", "vendor/uplot/LICENSE"} < set(files())


@pytest.mark.parametrize(
    "path", ["nothing.js", "../app.py", "..%2fapp.py", "%2e%2e/app.py", "/etc/passwd", "%00", "js", "js/", "é" * 500]
)
def test_no_other_file(api: RunningApi, path: str) -> None:
    """Nothing but the files of the page can be read."""
    answer = api.get(f"/static/{path}")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "route_unknown"


def test_head_of_the_page(api: RunningApi) -> None:
    """HEAD answers like GET without the body."""
    answer = api.client.head("/")
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_scripts_take_values_as_text_only(path: Path) -> None:
    """No script of ours can turn a value into markup or code, and what it imports exists."""
    text = path.read_text(encoding="utf-8")
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc"):
        assert way not in text
    for target in re.findall(r'from "([^"]+)"', text):
        found = FOLDER / target.removeprefix("/static/") if target.startswith("/") else path.parent / target
        assert found.resolve().is_file(), target


def test_nothing_from_elsewhere() -> None:
    """No file of ours names another host."""
    for path in FOLDER.rglob("*"):
        if path.is_file() and "vendor" not in path.parts:
            text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
            assert not re.search(r"https?://", text), path
