"""A real OpenAI server of vLLM in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

START_S = 420.0


@contextmanager
def server(target: Path, draft: Path | None, port: int, log: Path, *, k: int = 3) -> Iterator[str]:
    """Serves the target, with the draft when there is one; yields its address.

    Args:
        target: folder of a model with a tokenizer; draft: folder of its draft model.
        port: on the loopback; log: gets all that the server prints.
        k: draft positions.
    """
    options = {
        "--model": str(target),
        "--served-model-name": "tiny",
        "--host": "127.0.0.1",
        "--port": str(port),
        "--dtype": "float32",
        "--kv-cache-memory-bytes": str(16 << 20),
        "--max-model-len": "512",
        "--max-num-seqs": "8",
        "--max-num-batched-tokens": "512",
    }
    if draft is not None:
        speculative = {"model": str(draft), "method": "draft_model", "num_speculative_tokens": k}
        options["--speculative-config"] = json.dumps(speculative)
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager"]
    # Without plugins: this is the engine of somebody who knows nothing of accord.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ACCORD_")}
    environment["VLLM_PLUGINS"] = ""
    with log.open("wb") as output:
        running = subprocess.Popen(
            [*command, *(part for option in options.items() for part in option)],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url, running, log)
            yield url
        finally:
            # Its own session: the engine core is a child of the server's.
            os.killpg(running.pid, signal.SIGTERM)
            try:
                running.wait(30.0)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait(30.0)


def _wait(url: str, running: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if running.poll() is not None:
            break
        try:
            if httpx.get(f"{url}/health", trust_env=False, timeout=5.0).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.5)
    raise RuntimeError(f"the server does not come up:\n{log.read_text(errors='replace')[-4000:]}")
