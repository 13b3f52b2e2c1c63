"""The `accord` command in this process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from accord.learner.cli import main


class Cli:
    """Runs `accord` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], url: str) -> None:
        self.capsys, self.url = capsys, url

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main([*arguments, "--url", self.url])
        out, err = self.capsys.readouterr()
        return int(caught.value.code or 0), out, err

    def json(self, *arguments: str) -> Any:
        """What a command prints with --json."""
        code, out, err = self(*arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)
