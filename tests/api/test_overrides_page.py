"""The commands of docs/overrides.md, as a reader would paste them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.api.harness import PAIR, Publisher, RunningApi

PAGE = Path(__file__).parents[2] / "docs" / "overrides.md"
COMMANDS = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def learnt(publisher: Publisher) -> None:
    """A pair with a version 1 to go back to."""
    publisher.publish(chat_hot=0.4)


def test_every_command_works_in_order(api: RunningApi, learnt: None) -> None:
    """Pasted one after the other into a shell, every block of the page succeeds."""
    assert len(COMMANDS) == 3
    for block in COMMANDS:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            env={"API": api.url, "PAIR": PAIR.id, "PATH": "/usr/bin:/bin:/usr/local/bin"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    entries = api.get(f"/v1/pairs/{PAIR.id}/audit").json()["entries"]
    assert [entry["action"] for entry in reversed(entries)] == ["put", "put", "delete", "rollback", "delete"]
