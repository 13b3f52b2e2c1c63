"""A server that looks like vLLM's: saved metrics pages in turn, and completions where a test wants them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PAGES = Path(__file__).parent / "fixtures" / "metrics"

Answer = tuple[int, dict[str, str], bytes]
Complete = Callable[[dict[str, Any]], Answer]


def saved(name: str) -> str:
    """A saved page."""
    return (PAGES / f"{name}.txt").read_text()


def completion(text: str, tokens: int = 4) -> Answer:
    """A completion as vLLM answers it."""
    body = {"choices": [{"index": 0, "text": text}], "usage": {"completion_tokens": tokens}}
    return 200, {"content-type": "application/json"}, json.dumps(body).encode()


class MetricsServer:
    """Serves `/metrics` (each answer once, the last for ever), `/v1/models` and `/v1/completions` on a free port.

    Args:
        pages: text of pages, or whole answers.
        complete: answers a completion's body.
        models: what the server lists.
    """

    def __init__(
        self, pages: Sequence[str | Answer], complete: Complete | None = None, models: Sequence[str] = ("m",)
    ) -> None:
        self.asked: list[tuple[str, str]] = []
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[str | None] = []
        self.running = self.most_running = 0
        lock, waiting = threading.Lock(), list(pages)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

            def do_GET(self) -> None:
                """A page, or the models."""
                with lock:
                    outer.asked.append(("GET", self.path))
                    outer.headers.append(self.headers.get("authorization"))
                    if self.path == "/metrics":
                        found = waiting.pop(0) if len(waiting) > 1 else waiting[0]
                    elif self.path == "/v1/models":
                        found = json.dumps({"data": [{"id": name} for name in models]})
                    else:
                        found = (404, {}, b'{"detail":"Not Found"}')
                self._send(found if isinstance(found, tuple) else (200, {}, found.encode()))

            def do_POST(self) -> None:
                """A completion."""
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with lock:
                    outer.asked.append(("POST", self.path))
                    outer.headers.append(self.headers.get("authorization"))
                    outer.bodies.append(body)
                    outer.running += 1
                    outer.most_running = max(outer.most_running, outer.running)
                found = complete(body) if complete is not None else (404, {}, b"no completions")
                with lock:
                    outer.running -= 1
                self._send(found)

            def _send(self, answer: Answer) -> None:
                status, headers, body = answer
                self.send_response(status)
                for name, value in {"content-length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    self.wfile.write(body)
                except OSError:
                    # The client has read enough.
                    self.close_connection = True

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="metrics")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
