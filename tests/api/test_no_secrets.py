"""No token and no password appears in anything that a process writes or answers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import httpx
from tests.api.tokens import TokenFile, bearer
from tests.docker.users import deployed
from tests.waiting import until

from accord.api.auth import Role
from accord.learner.evaluate.trace import Trace
from accord.learner.store.acl import RedisRole

TIMEOUT_S = 60


def start(log: Path, module: str, *options: str, **environment: str) -> subprocess.Popen[bytes]:
    """A process whose every word goes to a file, with the most talkative logging of its libraries that we allow."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ACCORD_")}
    with open(log, "wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", module, *options], env=clean | environment, stdout=file, stderr=file
        )


def test_nothing_is_told(tmp_path: Path) -> None:
    """Api, learner, engine and doctor, driven with good and wrong tokens and while Redis fails, write no secret."""
    tokens = TokenFile(tmp_path / "tokens")
    wrong = "accord_wrong-token-of-somebody-4711"
    with deployed(tmp_path / "secrets") as stack, ExitStack() as children:
        secrets = [wrong, *tokens.tokens.values(), *(stack.password(role) for role in RedisRole)]
        secrets += [line.split()[2].partition(":")[2] for line in tokens.lines]
        own = tmp_path / "token"
        own.write_text(tokens.tokens[Role.ENGINE])
        ready = tmp_path / "url"

        def run(name: str, module: str, *options: str, **environment: str) -> subprocess.Popen[bytes]:
            child = start(tmp_path / f"{name}.log", module, *options, **environment)
            children.callback(child.wait, TIMEOUT_S)
            children.callback(child.kill)
            return child

        api = run(
            "api",
            "accord.api",
            *("--port", "0", "--ready-file", str(ready)),
            ACCORD_REDIS_URL=stack.url(RedisRole.API),
            ACCORD_API_TOKENS_FILE=str(tokens.path),
        )
        learner = run("learner", "accord.learner", ACCORD_REDIS_URL=stack.url(RedisRole.LEARNER))
        until(ready.exists)
        url = ready.read_text().strip()
        until(lambda: httpx.get(f"{url}/readyz").status_code == 200)
        engine = {"ACCORD_REDIS_URL": stack.url(RedisRole.ENGINE), "ACCORD_API_URL": url}
        pair = Trace.bundled().pair.id

        played = run("engine", "accord.hooks.replay", "--steps", "300", **engine, ACCORD_API_TOKEN_FILE=str(own))
        assert played.wait(TIMEOUT_S) == 0
        refused = run("refused", "accord.hooks.replay", "--steps", "50", **engine, ACCORD_API_TOKEN=wrong)
        assert refused.wait(TIMEOUT_S) == 0
        for name, token in (("good", {"ACCORD_API_TOKEN_FILE": str(own)}), ("bad", {"ACCORD_API_TOKEN": wrong})):
            asked = ("--service-only", "--target", "t", "--draft", "d", "--method", "eagle", "--k", "3")
            run(f"doctor-{name}", "accord.hooks.doctor", *asked, **engine, **token).wait(TIMEOUT_S)

        asked = [
            (f"{url}/v1/pairs/{pair}", headers)
            for secret in secrets
            for headers in (bearer(secret), {"Authorization": secret}, {"X-Token": secret})
        ]
        # What a client puts into a URL comes back to it alone: of these, only the logs are looked at.
        echoed = [
            (f"{url}/v1/pairs{rest}", bearer(secret))
            for secret in secrets
            for rest in (f"?token={secret}", f"?limit={secret}", f"/{quote(secret)}")
        ]
        # All at once, for wrong tokens are answered late.
        with ThreadPoolExecutor(64) as pool:
            answers = "".join(
                pool.map(lambda request: httpx.get(request[0], headers=request[1], timeout=60).text, asked)
            )
            list(pool.map(lambda request: httpx.get(request[0], headers=request[1], timeout=60), echoed))
        _junk(url, secrets)
        tokens.write(f"ops operator {wrong}\n")
        until(lambda: "token file refused" in (tmp_path / "api.log").read_text())

        stack.server.kill()
        until(lambda: "store lost" in (tmp_path / "api.log").read_text())
        until(lambda: "store lost" in (tmp_path / "learner.log").read_text())
        for child in (api, learner):
            child.send_signal(signal.SIGTERM)
            assert child.wait(TIMEOUT_S) == 0

        logs = {path.name: path.read_text(errors="replace") for path in tmp_path.glob("*.log")}
        assert len(logs) == 6
        assert "token refused" in logs["api.log"]
        assert "the token of ACCORD_API_TOKEN is refused" in logs["refused.log"] + logs["doctor-bad.log"]
        for name, text in {**logs, "answers": answers}.items():
            assert [secret for secret in secrets if secret in text or quote(secret) in text] == [], name


def _junk(url: str, secrets: list[str]) -> None:
    """Requests that are none, with secrets where the server may complain of them."""
    port = int(url.rpartition(":")[2])
    for secret in secrets:
        for text in (f"{secret}\r\n\r\n", f"GET / HTTP/9.{secret}\r\n\r\n", f"GET / HTTP/1.1\r\n{secret}\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
                sock.sendall(text.encode())
                sock.recv(1000)
