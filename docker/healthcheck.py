"""Whether the accord process of this container does its work: the api is ready, the learner is announced.

Exit code 0 or 1, one line of explanation. Which of the two runs here is read from the first process' command line.
"""

from __future__ import annotations

import os
import socket
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from accord.learner.errors import AccordError
from accord.learner.store import Store, connect

TIMEOUT_S = 3.0


def main() -> int:
    """Checks what runs here."""
    words = Path("/proc/1/cmdline").read_bytes().decode(errors="replace").split("\0")
    try:
        if "api" in words:
            found, why = _api(words)
        elif "learner" in words:
            found, why = _learner(words)
        else:
            found, why = True, "nothing to check for this command"
    except (OSError, AccordError) as error:
        found, why = False, f"{type(error).__name__}: {error}"
    sys.stdout.write(f"{why}\n")
    return 0 if found else 1


def _api(words: Sequence[str]) -> tuple[bool, str]:
    port = _option(words, "--port") or os.environ.get("ACCORD_API_PORT") or "8790"
    # Nothing on the way to the own loopback is a proxy's business.
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    scheme = "http"
    if os.environ.get("ACCORD_API_TLS_CERT"):
        # The certificate is that of the name that others use, not of this loopback.
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        handlers.append(urllib.request.HTTPSHandler(context=context))
        scheme = "https"
    opener = urllib.request.build_opener(*handlers)
    try:
        with opener.open(f"{scheme}://127.0.0.1:{port}/readyz", timeout=TIMEOUT_S) as answer:
            return True, answer.read(200).decode(errors="replace")
    except urllib.error.HTTPError as error:
        return False, f"HTTP {error.code}: {error.read(300).decode(errors='replace')}"


def _learner(words: Sequence[str]) -> tuple[bool, str]:
    url = _option(words, "--redis-url") or os.environ.get("ACCORD_REDIS_URL") or "redis://127.0.0.1:6379/0"
    options = {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S}
    with Store(connect(url, role="health", **options)) as store:
        ids = store.learners()
    # A learner's id begins with its host name, and a container has one of its own.
    own = [learner for learner in ids if learner.startswith(f"{socket.gethostname()}-")]
    return bool(own), f"{own[0]} is announced" if own else f"not among the {len(ids)} announced learners"


def _option(words: Sequence[str], name: str) -> str | None:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == name:
            return following
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


if __name__ == "__main__":
    sys.exit(main())
