"""Run as a process of its own: imports vLLM's worker with the plugin, as an engine does, and tells what came of it.

The last line of its output is JSON. A process, because importing vLLM takes long, may crash, and cannot be undone.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import logging
import os
import sys
from typing import Any

from ..vllm.identity import vllm_version
from ..vllm.notice import DISABLE_VARIABLE, STRICT_VARIABLE
from ..vllm.plugin import installed, register
from ..vllm.probe import RUNNER_MODULE, TARGETS, missing


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def inspect() -> dict[str, Any]:
    """Version, missing targets, and whether the patches hold."""
    # Whether it could work is asked here; that it is switched off is said elsewhere.
    for variable in (DISABLE_VARIABLE, STRICT_VARIABLE):
        os.environ.pop(variable, None)
    said = _Lines()
    logging.getLogger("accord").addHandler(said)
    found: dict[str, Any] = {"vllm": vllm_version(), "targets": len(TARGETS), "missing": [], "patched": False}
    register()
    try:
        importlib.import_module(RUNNER_MODULE)
    except Exception as error:  # noqa: BLE001  # whatever an import of somebody else's raises is the finding
        found["error"] = f"{type(error).__name__}: {error}"[:400]
        return found
    found |= {"missing": missing(), "patched": installed(), "said": said.lines[:5]}
    return found


if __name__ == "__main__":
    result = inspect()
    sys.stdout.write(f"\n{json.dumps(result)}\n")
    sys.stdout.flush()
    # Threads and atexit hooks of vLLM's libraries are not waited for.
    os._exit(0)
